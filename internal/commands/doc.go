// Package commands has the flags of all commands, and connects the packages that a command uses. It has no logic about
// keys. Package program has the code that all programs share.
//
//   - plan, migrate: larger commands
//   - ctl: the command-line client, for keyserverctl; agent, kmsplugin: for keyserver-agent
//   - access, auditverify, cluster, doctor, supportbundle: parts of commands of several programs
//
// May import: api, clients/go, clients/go/shared, controllers, httpapi, internal/audit, internal/auth, internal/crypto,
// internal/engine, internal/keyserver, internal/operator, internal/platform, internal/server, internal/store
package commands

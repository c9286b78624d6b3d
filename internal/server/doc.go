// Package server assembles one serve process: it opens the database and the keys, starts the key server and its
// background work, and serves the HTTP API. No other package connects all parts.
//
//   - admission: signed release manifests, which list the builds that may serve
//   - console: the files of the web console; listener: limits of connections
//   - tlscert: certificates of the listeners, and checks of client certificates
//   - testserver: a server for tests
//
// May import: clients/go/shared, httpapi, internal/audit, internal/auth, internal/crypto, internal/engine,
// internal/keyserver, internal/platform, internal/store
package server

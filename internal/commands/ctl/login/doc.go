// Package login keeps what keyserverctl knows about key servers: their URLs and certificates (contexts), and the session
// of each with the key that it is bound to. It has the commands login, logout and contexts, the flags that choose a
// context, and the exit code of a failed call.
//
// The settings, sessions and keys are files of the user, or entries of the desktop's keyring; only this package reads
// and writes them. The verbs of package ctl get a client and the id of the session.
//
// The package may import cmdline, clients/go/client, clients/go/schema, keyserver, shared/certtext and version.
package login

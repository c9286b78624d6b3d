// Package login stores the contexts of keyserverctl (URLs and certificates of key servers), and the session and bound
// key of each context. It has the commands login, logout and contexts, the flags that choose a context, and the exit
// codes of failed calls.
//
// Settings, sessions and keys are files of the user, or entries in the desktop's keyring. Only this package accesses
// them. Package ctl gets a client and the session's public id.
//
// The package may import cmdline, clients/go/client, clients/go/schema, keyserver, shared/certtext and version.
package login

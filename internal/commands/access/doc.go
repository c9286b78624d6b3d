// Package access has the flags for the URL of a key server and for the login to it. It logs in for one command. The
// commands plan, export and backup use all flags. Commands of keyserverctl use only the password flags, because a
// context has the URL.
//
// Passwords and tokens are read from files. No session is stored: the command that opens a session ends it.
//
// It may import clients/go/client, program and shared/certtext.
package access

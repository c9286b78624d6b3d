// Package access has the flags for the URL and the principal of one key server, and logs in for one command.
// The commands plan, export and backup bind all flags. Commands of keyserverctl bind the password only, because they
// have the URL from a context.
//
// A password or a token comes from a file. The package stores no session: the command that opens one ends it.
//
// It may import clients/go/client, program and shared/certtext.
package access

// Package cmdline has what all commands of keyserverctl share: exit codes, the rejection of wrong command lines,
// completion of values, and reading files and secrets up to a limit. It knows no route and no key server, and imports no
// other package of this module.
package cmdline

// Package cmdline has the code that all commands of keyserverctl share: exit codes, errors for wrong command lines,
// completion of values, and reading files and secrets with a size limit. It has no code about routes or key servers,
// and imports no package of this module.
package cmdline

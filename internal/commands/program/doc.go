// Package program has the code that all programs share: exit codes, signals, errors for wrong command lines, flags from
// environment variables, and logs.
package program

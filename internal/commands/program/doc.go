// Package program has what all programs share: exit codes, signals, wrong command lines, flags from the environment,
// and logs.
package program

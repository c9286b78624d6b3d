// Package keyserver is the vocabulary of a key server and the port through
// which everything else talks to one. It knows no HTTP, no SQL and no
// implementation: package engine implements the port, package verified uses
// it, and tests put a key server behind it that lies.
package keyserver

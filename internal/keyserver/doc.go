// Package keyserver is the vocabulary of a key server (operations, principals, keys, ACLs)
// and the port through which all other code uses one. It knows no HTTP, no SQL and no implementation:
// internal/engine implements the port, and internal/engine/verified uses it.
//
//   - lifecycle: the states of a key and the rules of rotation and destruction
//
// May import: clients/go/shared, internal/platform
package keyserver

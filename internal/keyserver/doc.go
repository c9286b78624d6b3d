// Package keyserver has the types of a key server (operations, principals, keys, ACLs) and Port, the interface by which
// all other code uses a key server. It does not depend on HTTP, SQL or an implementation: internal/engine implements
// Port, and internal/engine/verified uses it.
//
//   - lifecycle: the states of a key and the rules of rotation and destruction
//
// May import: clients/go/shared, internal/platform
package keyserver

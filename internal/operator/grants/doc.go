// Package grants decides whether the grants of a KeyServer cover what an object would touch on the key
// server: its names, and the operations that it gives to others (docs/adr/0049-grants.md).
//
// The decision needs only the KeyServer, the object's namespace and its labels. The reconciler asks
// before anything is sent.
//
// May import: api, internal/operator/connection, internal/platform/brief
package grants

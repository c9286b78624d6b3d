// Package grants decides whether the grants of a KeyServer allow the names and operations of an object: its names on
// the key server, and the operations that it grants to others (docs/adr/0049-grants.md).
//
// The decision needs only the KeyServer, the object, and the labels of the object's namespace. The reconciler decides
// before it sends any request.
//
// May import: api, internal/operator/connection, clients/go/shared/brief
package grants

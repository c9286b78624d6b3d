// Package grants decides whether the grants of a KeyServer cover what an object would touch on the
// key server: its names, and the operations that it grants to others (docs/adr/0049-grants.md).
//
// The decision needs only the KeyServer, the object's namespace and
// its labels. The reconciler decides before it sends any request.
//
// May import: api, internal/operator/connection, clients/go/shared/brief
package grants

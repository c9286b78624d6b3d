// Package operator has no code. Its directories have the parts of the manager that do not depend on a kind:
//
//   - reconcile: the reconciler of all kinds, which decides to create, adopt, repair and delete
//   - grants: the names and operations that a KeyServer allows to objects
//   - sources: values that objects refer to; status: conditions and events
//   - connection: the connection to a key server, its listings and its change feed
//   - export: makes manifests from a key server; manifest: reads and validates manifests
//   - trustfiles: certificates and keys that it shares with its key server; firstkeyserver: creates a KeyServer
//
// The kinds are in controllers.
// May import: api, clients/go, clients/go/shared, config, internal/platform
package operator

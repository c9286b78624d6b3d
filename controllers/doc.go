// Package controllers has the kinds: an adapter for each managed kind, in a file named
// after it, and the reconciler of KeyServers (keyserver.go), which all of them refer to.
// The adapters plug into package reconcile. Package connection connects to key servers.
//
// A kind is a line of v1alpha1.Kinds and one file here, which registers
// its adapter (kinds.go). No file of package reconcile knows the kind,
// and of package connection only api.go if the kind needs new requests.
//
// Setup runs the reconcilers in a manager. A Planner (plan.go) asks
// the same reconcilers for their next actions and prevents all writes.
package controllers

// Package controllers has an adapter for each managed kind, in a file named after the kind. It also has the reconciler
// of KeyServers (keyserver.go), to which all kinds refer. Package reconcile uses the adapters. Package connection
// connects to key servers.
//
// To add a kind, add a line to v1beta1.Kinds and a file with its adapter here, which registers the adapter (kinds.go).
// Package reconcile needs no change. Package connection needs new methods in api.go only for new requests.
//
// Setup runs the reconcilers in a manager. A Planner (plan.go) runs the same reconcilers without writes and returns
// their next actions.
package controllers

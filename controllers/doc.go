// Package controllers has the kinds: an adapter for each that is managed, in a
// file that is named after the kind, and the reconciler of KeyServers
// (keyserver.go), to which all of them refer. What the adapters plug into is
// package reconcile, how a key server is reached is package connection.
//
// A kind is a line of v1alpha1.Kinds and one file here, which adds its adapter by
// itself (kinds.go). No file of package reconcile knows of it, and of connection only
// api.go, where the service is asked something new.
//
// Setup runs them in a manager. A Planner (plan.go) asks the same reconcilers
// what they would do, and lets them do nothing.
package controllers

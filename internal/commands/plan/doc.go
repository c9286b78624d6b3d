// Package plan reports what the manager would do about manifests that are not applied yet. It puts them, and
// the objects that they refer to, into a snapshot for the manager's own reconcilers (snapshot.go). Each
// reconciler makes one pass over connections that reject writes, and the package prints their decisions.
//
// The process only reads: the snapshot keeps the reconcilers' writes to the cluster, and package controllers
// rejects their writes to a key server.
package plan

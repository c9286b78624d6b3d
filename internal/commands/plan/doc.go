// Package plan shows what the manager would do if manifests were applied. It puts them and the objects to which they
// refer into a snapshot for the manager's own reconcilers (snapshot.go). Each reconciler runs one pass with connections
// that block writes, and the package prints the decisions.
//
// The process only reads. The snapshot keeps writes to the cluster in memory, and package controllers blocks writes to
// a key server.
package plan

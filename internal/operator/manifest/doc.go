// Package manifest reads manifests from files and validates them as a kube-apiserver with
// the custom resource definitions of this build does at admission: unknown and duplicate
// fields, the schema, its CEL rules, and the metadata. It does not connect to a cluster.
package manifest

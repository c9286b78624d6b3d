// Package manifest reads manifests from files and says of each what a
// kube-apiserver with the custom resource definitions of this build would say
// at admission: unknown and duplicate fields, the schema, its rules in CEL, and
// what metadata may be. It talks to no cluster.
package manifest

// Package cluster reads objects from the Kubernetes cluster in which the operator runs. It has the flags for this,
// reads the kubeconfig, and sends requests to the API server by path. The commands doctor and support-bundle of
// keyserverctl use it. The manager uses only Config and ManagerLease.
//
// The package decodes only the needed fields, without the typed clients of client-go and the types of Kubernetes. So
// keyserverctl stays small (docs/adr/0079). Each response has a limit of time, of bytes, and of JSON values.
//
// It may import api and program.
package cluster

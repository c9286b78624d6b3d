// Package cluster reads the cluster of the operator: flags, kubeconfig, and requests to the API server by path. The
// commands doctor and support-bundle of keyserverctl use it. The manager uses only the kubeconfig.
//
// The package decodes only the needed fields, without the typed clients of client-go and the types of Kubernetes. So
// keyserverctl stays small (docs/adr/0079). Each response is limited in time, bytes and values.
//
// It may import api and program.
package cluster

// Package cluster reads the cluster that the operator runs in: the flags that choose it, its kubeconfig, and requests to
// its API by path. The commands doctor and support-bundle of keyserverctl use it. The manager uses only the
// kubeconfig.
//
// It decodes only the fields that it needs, and links neither the typed clients of client-go nor the types of Kubernetes.
// So keyserverctl stays small (docs/adr/0079). Each response is bounded in time, bytes and values.
//
// It may import api and program.
package cluster

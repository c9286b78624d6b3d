//go:build tools

// Package controlplane pins the Kubernetes control plane for tests and "keyserver-dev up". Its own module keeps
// Kubernetes out of the product's dependency graph.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)

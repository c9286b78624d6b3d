// Package controlplane is what the suites that need a cluster have in common: it
// tells where kube-apiserver, etcd and kubectl are, starts a kube-apiserver, runs
// a manager against it, and reads whether an object is Ready. hack/needs.sh provides
// these programs for each package that imports it.
package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// What need says if the programs are not there.
const (
	Programs = "a control plane (kube-apiserver, etcd and kubectl)"
	Remedy   = "make test, or make test-system for system tests, which build one and set KUBEBUILDER_ASSETS"
)

func dir() string { return os.Getenv("KUBEBUILDER_ASSETS") }

// Missing is for a TestMain: it reports whether the programs are not there.
func Missing() bool { return dir() == "" }

// Need skips or fails a test if the programs are not there.
func Need(t testing.TB) {
	t.Helper()
	if Missing() {
		need.Missing(t, Programs, Remedy)
	}
}

// Kubectl is the path of kubectl.
func Kubectl(t testing.TB) string {
	t.Helper()
	Need(t)
	return filepath.Join(dir(), "kubectl")
}

// Package controlplane has the common parts of suites that need a cluster. It finds kube-apiserver, etcd and kubectl,
// starts a kube-apiserver, runs a manager with it, and reads whether an object is Ready. hack/needs.sh provides the
// programs for each package that imports it.
package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// Arguments for the functions of package need if the programs are missing.
const (
	Programs = "a control plane (kube-apiserver, etcd and kubectl)"
	Remedy   = "make test, or make test-system for system tests, which build one and set KUBEBUILDER_ASSETS"
)

func dir() string { return os.Getenv("KUBEBUILDER_ASSETS") }

// Missing reports whether the programs are missing, for a TestMain.
func Missing() bool { return dir() == "" }

// Need skips or fails a test if the programs are missing.
func Need(t testing.TB) {
	t.Helper()
	if Missing() {
		need.Missing(t, Programs, Remedy)
	}
}

// Kubectl returns the path of kubectl.
func Kubectl(t testing.TB) string {
	t.Helper()
	Need(t)
	return filepath.Join(dir(), "kubectl")
}

// Package controlplane is what the suites that need a cluster have in common: it
// tells where kube-apiserver, etcd and kubectl are, starts a kube-apiserver, runs
// a manager against it, and reads whether an object is Ready. Whoever imports it
// needs these programs, which is how make knows (hack/needs.sh).
package controlplane

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Dir is the directory that holds them.
func Dir() (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		return "", errors.New("these tests need kube-apiserver, etcd and kubectl: run make test")
	}
	return dir, nil
}

// Need fails a test where they are not there.
func Need(t testing.TB) {
	t.Helper()
	if _, err := Dir(); err != nil {
		t.Fatal(err)
	}
}

// Kubectl is the path of kubectl.
func Kubectl(t testing.TB) string {
	t.Helper()
	dir, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "kubectl")
}

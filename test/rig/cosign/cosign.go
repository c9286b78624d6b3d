// Package cosign is cosign for tests. Whoever imports it needs that, which is how make
// knows (hack/needs.sh).
package cosign

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Program is the path of cosign. The result of a test that asks depends on which one it is
// (see test/program).
func Program(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this needs cosign")
	}
	program := os.Getenv("RIG_COSIGN")
	if program == "" {
		t.Fatal("RIG_COSIGN is not set: run the suite by make test PKG=..., which builds cosign of hack/cosign")
	}
	root, err := rig.Root()
	rig.Must(t, err)
	_, err = os.ReadFile(filepath.Join(root, "hack", "cosign", "go.sum"))
	rig.Must(t, err)
	return program
}

// Package krew is krew, kubectl's manager of plugins, for tests. Whoever imports it needs
// that, which is how make knows (hack/needs.sh).
package krew

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Programs is the directory of kubectl-krew, and of validate-krew-manifest, by which krew's
// index looks at a plugin. The result of a test that asks depends on which krew it is, and
// on what makes the plugin's archives (see test/program).
func Programs(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this needs krew")
	}
	programs := os.Getenv("RIG_KREW")
	if programs == "" {
		t.Fatal("RIG_KREW is not set: run the suite by make test PKG=..., which builds krew of hack/krew")
	}
	root, err := rig.Root()
	rig.Must(t, err)
	for _, file := range []string{"LICENSE", "config/krew/keyserver.yaml", "hack/krew.sh", "hack/krew/go.sum"} {
		_, err = os.ReadFile(filepath.Join(root, file))
		rig.Must(t, err)
	}
	return programs
}

// Package krew provides krew, kubectl's plugin manager, for tests. make provides krew for packages that import it
// (hack/needs.sh).
package krew

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Programs returns the directory of kubectl-krew and of validate-krew-manifest, with which krew's index checks a
// plugin. The test result then depends on the files from which the plugin's archives are built.
func Programs(t testing.TB) string {
	t.Helper()
	return rig.Tool(t, "krew", "RIG_KREW", "test/thirdparty/krew/go.sum", "hack/krew.sh", "config/krew/keyserver.yaml", "LICENSE")
}

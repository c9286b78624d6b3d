// Package krew is krew, kubectl's manager of plugins, for tests. Whoever imports it needs
// that, which is how make knows (hack/needs.sh).
package krew

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Programs is the directory of kubectl-krew, and of validate-krew-manifest, by which krew's
// index looks at a plugin. What makes the plugin's archives counts, too.
func Programs(t testing.TB) string {
	t.Helper()
	return rig.Tool(t, "krew", "RIG_KREW", "hack/krew/go.sum", "hack/krew.sh", "config/krew/keyserver.yaml", "LICENSE")
}

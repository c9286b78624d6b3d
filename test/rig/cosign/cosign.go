// Package cosign is cosign for tests. Whoever imports it needs that, which is how make
// knows (hack/needs.sh).
package cosign

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Program is the path of cosign.
func Program(t testing.TB) string {
	t.Helper()
	return rig.Tool(t, "cosign", "RIG_COSIGN", "hack/cosign/go.sum")
}

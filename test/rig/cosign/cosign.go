// Package cosign provides cosign for tests. make provides the program for packages that import it (hack/needs.sh).
package cosign

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Program returns the path of cosign.
func Program(t testing.TB) string {
	t.Helper()
	return rig.Tool(t, "cosign", "RIG_COSIGN", "test/thirdparty/cosign/go.sum")
}

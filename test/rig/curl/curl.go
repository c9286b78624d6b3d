// Package curl is for tests that run what a document shows. Whoever imports it
// needs curl, which is how make knows (hack/needs.sh).
package curl

import (
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// Need fails a test where curl is not there.
func Need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		need.Missing(t, "curl", "make test, which installs it")
	}
}

// Package curl is for tests that run commands of a document. Its importers need curl; make finds it by this
// import (hack/needs.sh).
package curl

import (
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// Need skips or fails a test if curl is missing.
func Need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		need.Missing(t, "curl", "make test, which installs it")
	}
}

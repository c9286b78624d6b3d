// Package shell is for tests that run the commands of a document as they stand there.
// Whoever imports it needs bash, curl, jq and age, which is how make knows
// (hack/needs.sh).
package shell

import (
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// Need fails a test where one of them is not there.
func Need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"bash", "curl", "jq", "age-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			need.Missing(t, program, "make test-system, which installs it")
		}
	}
}

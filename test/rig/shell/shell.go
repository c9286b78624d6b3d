// Package shell is for tests that run the commands of a document. Its importers need bash, curl, jq and age;
// make finds them by this import (hack/needs.sh).
package shell

import (
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// Need skips or fails a test if one of the programs is missing.
func Need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"bash", "curl", "jq", "age-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			need.Missing(t, program, "make test-system, which installs it")
		}
	}
}

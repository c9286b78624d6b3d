// Package browser has Chromium for tests, and the web console built in the program that
// they start. Whoever imports it needs both, which is how make knows (hack/needs.sh).
package browser

import (
	"os"
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// Variable names Chromium's program: "make test" finds it, or installs Debian's.
const Variable = "RIG_CHROMIUM"

// Chromium answers the path of its program.
func Chromium(t testing.TB) string {
	t.Helper()
	path := os.Getenv(Variable)
	if path == "" {
		path = "chromium"
	}
	path, err := exec.LookPath(path)
	if err != nil {
		need.Missing(t, "Chromium", "make test-system, which installs it, or set "+Variable)
	}
	return path
}

// Package browser provides Chromium for tests, and the web console in the program that they start. make provides both
// for packages that import it (hack/needs.sh).
package browser

import (
	"os"
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// Variable names Chromium's program: "make test" finds it, or installs that of Debian.
const Variable = "RIG_CHROMIUM"

// Chromium returns the path of the program.
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

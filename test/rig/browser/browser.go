// Package browser has Chromium for tests, and the web console built in the program that
// they start. Whoever imports it needs both, which is how make knows (hack/needs.sh).
package browser

import (
	"os"
	"os/exec"
	"testing"
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
		t.Fatalf("Chromium is not installed, and the console is tested in it: install Debian's package chromium, or name its program in %s", Variable)
	}
	return path
}

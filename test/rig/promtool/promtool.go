// Package promtool runs promtool of Prometheus for tests. make provides the program for packages that import it
// (hack/needs.sh).
package promtool

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Program returns the path of promtool.
func Program(t testing.TB) string {
	t.Helper()
	return rig.Tool(t, "promtool", "RIG_PROMTOOL", "test/thirdparty/promtool/go.sum")
}

// Run runs promtool and returns its output and its error.
func Run(t testing.TB, arguments ...string) (said string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), Program(t), arguments...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

// Package helm runs Helm for tests. Whoever imports it needs that, which is how make knows
// (hack/needs.sh).
package helm

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Program is the path of Helm. The chart counts, too.
func Program(t testing.TB) string {
	t.Helper()
	return rig.Tool(t, "Helm", "RIG_HELM", "hack/helm", "config/chart")
}

// Run runs Helm, with nothing of its user's, and answers what it said on its two outputs,
// and how it ended.
func Run(t testing.TB, arguments ...string) (out, errOut string, err error) {
	t.Helper()
	program := Program(t)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, arguments...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

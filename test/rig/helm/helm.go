// Package helm runs Helm for tests. make provides the program for packages that import it (hack/needs.sh).
package helm

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Program returns the path of Helm. The test result then depends on the chart.
func Program(t testing.TB) string {
	t.Helper()
	return rig.Tool(t, "Helm", "RIG_HELM", "test/thirdparty/helm", "config/chart")
}

// Run runs Helm without the user's configuration. It returns standard output, standard error and the error.
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

// Package helm runs Helm for tests. Whoever imports it needs that, which is how make knows
// (hack/needs.sh).
package helm

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Program is the path of Helm. The result of a test that asks depends on the chart, and on
// which Helm it is (see test/program).
func Program(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this needs Helm")
	}
	program := os.Getenv("RIG_HELM")
	if program == "" {
		t.Fatal("RIG_HELM is not set: run the suite by make test PKG=..., which builds Helm of hack/helm")
	}
	root, err := rig.Root()
	rig.Must(t, err)
	for _, directory := range []string{"config/chart", "hack/helm"} {
		rig.Must(t, filepath.WalkDir(filepath.Join(root, directory), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				_, err = os.ReadFile(path)
			}
			return err
		}))
	}
	return program
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

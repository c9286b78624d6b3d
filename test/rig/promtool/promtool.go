// Package promtool runs Prometheus' promtool for tests. Whoever imports it needs that,
// which is how make knows (hack/needs.sh).
package promtool

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Program is the path of promtool. The result of a test that asks depends on which one it
// is (see test/program).
func Program(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this needs promtool")
	}
	program := os.Getenv("RIG_PROMTOOL")
	if program == "" {
		t.Fatal("RIG_PROMTOOL is not set: run the suite by make test PKG=..., which builds promtool of hack/promtool")
	}
	root, err := rig.Root()
	rig.Must(t, err)
	_, err = os.ReadFile(filepath.Join(root, "hack", "promtool", "go.sum"))
	rig.Must(t, err)
	return program
}

// Run runs promtool, and answers what it said and how it ended.
func Run(t testing.TB, arguments ...string) (said string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), Program(t), arguments...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

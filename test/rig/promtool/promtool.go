// Package promtool runs Prometheus' promtool for tests. Whoever imports it needs that,
// which is how make knows (hack/needs.sh).
package promtool

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Program is the path of promtool.
func Program(t testing.TB) string {
	t.Helper()
	return rig.Tool(t, "promtool", "RIG_PROMTOOL", "hack/promtool/go.sum")
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

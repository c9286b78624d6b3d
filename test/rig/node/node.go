// Package node runs programs of the npm registry for tests. Whoever imports it
// needs Node.js with npm, which is how make knows (hack/needs.sh).
package node

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// patience bounds one run.
const patience = 3 * time.Minute

// Install puts files of the working directory into one of the test, with the
// packages that package-lock.json pins, and answers it.
func Install(t testing.TB, files ...string) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed, and the clients of this test run on it: run hack/node.sh, or install Node.js 20 or newer with npm", program)
		}
	}
	dir := t.TempDir()
	for _, name := range append([]string{"package.json", "package-lock.json"}, files...) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	Run(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	return dir
}

// Run answers the standard output of a program that has to succeed.
func Run(t testing.TB, dir string, env []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", program, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String()
}

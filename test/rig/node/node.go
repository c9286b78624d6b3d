// Package node runs programs of the npm registry for tests. Its importers need Node.js with npm; make finds
// them by this import (hack/needs.sh).
package node

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// patience is the timeout of one run. It only distinguishes a slow machine from a hanging program.
const patience = 10 * time.Minute

// Install copies files of the working directory into a new directory and returns it. The directory also has the
// packages that package-lock.json pins.
func Install(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(Packages(t, "."), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Packages returns the directory of the packages that a package-lock.json pins. hack/npm.sh installs them once
// per user.
func Packages(t testing.TB, of string) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			need.Missing(t, program, "make test, which installs Node.js")
		}
	}
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(Run(t, ".", nil, filepath.Join(root, "hack/npm.sh"), of))
}

// Run returns the standard output of a program. The program must succeed.
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

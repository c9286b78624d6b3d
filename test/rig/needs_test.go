package rig

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// signs maps texts in a test file to the program that the package needs.
var signs = map[string]string{
	`"KUBEBUILDER_ASSETS"`: "cluster", `envtest.`: "cluster", `"RIG_PG_BIN"`: "postgres", `"RIG_SLAPD"`: "directory", `"RIG_RSYSLOGD"`: "syslog",
	`"RIG_PROGRAM"`: "program", `LookPath("curl")`: "curl", `Command("npm"`: "node", `Command("node"`: "node", `Command("go", "build"`: "program",
}

// TestNeedsAreSeen finds suites that use a program of the machine without importing the package for it. make finds
// needs by imports, so that it would not provide the program.
func TestNeedsAreSeen(t *testing.T) {
	root := filepath.Join("..", "..")
	list := exec.Command(filepath.Join(root, "hack", "needs.sh"), "-packages", "./...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	Must(t, err)
	needs := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(strings.TrimPrefix(line, "github.com/keyserver-operator/keyserver-operator/"))
		needs[words[0]] = words[1:]
	}
	if !slices.Equal(needs["test/contract"], []string{"postgres", "directory", "curl"}) || len(needs["internal/crypto/jws"]) != 0 {
		t.Errorf("test/contract needs %v, internal/crypto/jws %v", needs["test/contract"], needs["internal/crypto/jws"])
	}
	seen := map[string]bool{}
	Must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != root {
			if _, missing := os.Stat(filepath.Join(path, "go.mod")); missing == nil {
				return fs.SkipDir // another module, whose tests "make test" runs by a test of this module
			}
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "needs_test.go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for sign, need := range signs {
			if strings.Contains(string(text), sign) {
				seen[need] = true
				if !slices.Contains(needs[filepath.ToSlash(dir)], need) {
					t.Errorf("%s has %s, and hack/needs.sh does not see that %s needs the %s", path, sign, dir, need)
				}
			}
		}
		return err
	}))
	if !seen["cluster"] {
		t.Error("nothing was found, so nothing was shown")
	}
}

// TestWithin checks that Within returns immediately if the condition is true, and that it ends if the condition never
// is.
func TestWithin(t *testing.T) {
	looked := 0
	if !poll(0, func() bool { looked++; return true }) || looked != 1 {
		t.Errorf("looked %d times at what holds", looked)
	}
	looked = 0
	if poll(20*oftenest, func() bool { looked++; return false }) || looked < 3 {
		t.Errorf("looked %d times at what does not hold, and took it to hold", looked)
	}
	looked = 0
	if !poll(Patience, func() bool { looked++; return looked == 3 }) {
		t.Error("what holds at the third look was not found")
	}
}

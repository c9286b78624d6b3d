// Package document checks statements in the documents against the code.
package document

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	function = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// TestThreats checks that each threat names a test, and that each test exists.
func TestThreats(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	threats := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.Contains(line, "Shown by") {
			continue
		}
		threats++
		directory, tests := "", 0
		for _, name := range quoted.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			if !strings.HasPrefix(name[1], "Test") && !strings.HasPrefix(name[1], "Fuzz") {
				directory = name[1]
				continue
			}
			tests++
			if !functionsOf(t, directory)[name[1]] {
				t.Errorf("%q: there is no %s in %s", strings.TrimSpace(cells[0]), name[1], directory)
			}
		}
		if tests == 0 {
			t.Errorf("%q names no test", strings.TrimSpace(cells[0]))
		}
	}
	if threats < 20 {
		t.Errorf("only %d threats were read", threats)
	}
}

// TestRemainingRisks checks the text of docs/security.md outside of its tables: each test that it names must exist. The
// paragraph must name the directory before the test.
func TestRemainingRisks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	directory, tests := "", 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "|") {
			continue
		}
		if strings.HasPrefix(line, "- ") || strings.TrimSpace(line) == "" {
			directory = ""
		}
		for _, name := range quoted.FindAllStringSubmatch(line, -1) {
			switch {
			case strings.HasPrefix(name[1], "Test"), strings.HasPrefix(name[1], "Fuzz"):
				tests++
				if !functionsOf(t, directory)[name[1]] {
					t.Errorf("%q: there is no %s in %q", strings.TrimSpace(line), name[1], directory)
				}
			default:
				if at, err := os.Stat(filepath.Join(root, name[1])); err == nil && at.IsDir() {
					directory = name[1]
				}
			}
		}
	}
	if tests < 3 {
		t.Errorf("only %d tests were read", tests)
	}
}

func functionsOf(t *testing.T, directory string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, directory, "*_test.go"))
	if err != nil || directory == "" || len(files) == 0 {
		t.Fatalf("no tests in %q: %v", directory, err)
	}
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	return names
}

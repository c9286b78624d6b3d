package recipes

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// step is one numbered step of a recipe.
type step struct {
	files    []string
	optional bool // the step begins with "If"
	either   bool // the step begins with "One of"
}

var (
	item        = regexp.MustCompile(`(?m)^\d+\. (.*(?:\n {3}.*)*)`)
	code        = regexp.MustCompile("`([^`]+)`")
	proofs      = regexp.MustCompile("Proof: `go test ([^`]+)`")
	placeholder = regexp.MustCompile(`[A-Z]{3,}`)
)

// section returns the text of a recipe.
func section(contributing, title string) (string, error) {
	_, text, found := strings.Cut(contributing, "\n### "+title+"\n")
	if !found {
		return "", fmt.Errorf("CONTRIBUTING.md has no recipe %q", title)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	text, _, _ = strings.Cut(text, "\n### ")
	return text, nil
}

// steps returns the steps of a recipe. A step names its files before its first colon. names replaces the placeholders
// in capitals.
func steps(recipe string, names map[string]string) (all []step) {
	for _, m := range item.FindAllStringSubmatch(recipe, -1) {
		text, _, _ := strings.Cut(strings.Join(strings.Fields(m[1]), " "), ": ")
		s := step{optional: strings.HasPrefix(text, "If "), either: strings.HasPrefix(text, "One of ")}
		for _, file := range code.FindAllStringSubmatch(text, -1) {
			s.files = append(s.files, placeholder.ReplaceAllStringFunc(file[1], func(name string) string {
				return cmp.Or(names[name], name)
			}))
		}
		all = append(all, s)
	}
	return all
}

// differences lists the files that only the steps or only the additions have.
func differences(all []step, additions []string) (found []string) {
	for _, s := range all {
		missing := slices.DeleteFunc(slices.Clone(s.files), func(file string) bool { return slices.Contains(additions, file) })
		if len(s.files) == 0 {
			found = append(found, "a step names no file before its first colon")
		}
		if s.optional || s.either && len(missing) < len(s.files) {
			continue
		}
		for _, file := range missing {
			found = append(found, "testdata has no addition for "+file)
		}
	}
	for _, file := range additions {
		if !slices.ContainsFunc(all, func(s step) bool { return slices.Contains(s.files, file) }) {
			found = append(found, "CONTRIBUTING.md does not name "+file)
		}
	}
	return found
}

// contributing returns the text of CONTRIBUTING.md.
func contributing(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNamedFilesExist checks the steps of all recipes. A name in capitals stands for any name.
func TestNamedFilesExist(t *testing.T) {
	_, recipes, _ := strings.Cut(contributing(t), "\n## Recipes\n")
	recipes, _, _ = strings.Cut(recipes, "\n## ")
	n := 0
	for _, s := range steps(recipes, nil) {
		for _, file := range s.files {
			if strings.Contains(file, "/") && !strings.Contains(file, " ") && !placeholder.MatchString(file) {
				n++
				if _, err := os.Stat(filepath.Join(root, file)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d files were found", n)
	}
}

func TestDifferences(t *testing.T) {
	all := steps("1. `api/KIND.go`: its type. `doc.go` says more.\n2. `api/kinds.go` and\n   `a.md`: rows.\n3. If it has a route, `b.go`: the route.\n4. One of `c.go` or `d.go`: the rest.\n", map[string]string{"KIND": "key"})
	for name, tc := range map[string]struct{ additions, want []string }{
		"complete":         {[]string{"api/key.go", "api/kinds.go", "a.md", "c.go"}, nil},
		"with an optional": {[]string{"api/key.go", "api/kinds.go", "a.md", "d.go", "b.go"}, nil},
		"one left out":     {[]string{"api/key.go", "api/kinds.go", "d.go"}, []string{"testdata has no addition for a.md"}},
		"another name":     {[]string{"api/keys.go", "api/kinds.go", "a.md", "c.go"}, []string{"testdata has no addition for api/key.go", "CONTRIBUTING.md does not name api/keys.go"}},
		"one too many":     {[]string{"api/key.go", "api/kinds.go", "a.md", "c.go", "doc.go"}, []string{"CONTRIBUTING.md does not name doc.go"}},
		"none of two":      {[]string{"api/key.go", "api/kinds.go", "a.md"}, []string{"testdata has no addition for c.go", "testdata has no addition for d.go"}},
	} {
		if got := differences(all, tc.additions); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

package program

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestSourcesAreAll checks that DependOnSources covers every package of the program.
func TestSourcesAreAll(t *testing.T) {
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if or .Main .Replace}}{{$.Dir}}{{end}}{{end}}", ".")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(string(out))
	if len(dirs) < 10 {
		t.Fatalf("the program is made of %q", dirs)
	}
	for _, dir := range dirs {
		relative, err := filepath.Rel(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		relative = filepath.ToSlash(relative)
		if relative != "." && !slices.ContainsFunc(sources, func(source string) bool { return relative == source || strings.HasPrefix(relative, source+"/") }) {
			t.Errorf("%s is part of the program", relative)
		}
	}
	files := exec.Command("go", "list", "-f", "{{.GoFiles}} {{.EmbedFiles}}", ".")
	files.Dir = root
	if out, err := files.Output(); err != nil || string(out) != "[main.go] []\n" {
		t.Errorf("the program's own package is %s, %v", out, err)
	}
	if err := DependOnSources(); err != nil {
		t.Error(err)
	}
}

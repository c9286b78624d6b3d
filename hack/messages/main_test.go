package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMessages checks that each message stays on its line, and that code, short texts, tags and comments are omitted.
func TestMessages(t *testing.T) {
	t.Chdir(t.TempDir())
	for file, c := range map[string]struct{ text, want string }{
		"a.go": {"package a\n\n// whoever reads this\nvar (\n\tshort = \"two words\"\n\tquery = `SELECT what was FROM there`\n\tone = \"the key %q is told\" + \" to go on now\"\n)\n\ntype b struct {\n\tc int `json:\"a b c d\"`\n}\n",
			"\n\n\n\n\n\nthe key X is told to go on now \n"},
		"rules.yaml": {"alert: A\n  summary: 'it goes on'\n  expr: up == 0\n  description: see the log\n", "\nit goes on \n\nsee the log \n"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		into := t.TempDir()
		if err := run(into, []string{file}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(into, file+".txt"))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", file, got, err, c.want)
		}
	}
}

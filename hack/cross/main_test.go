package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck checks that mistakes are found in files of another platform, in tests, and in imported packages.
func TestCheck(t *testing.T) {
	files := map[string]string{
		"go.mod":            "module example.org/m\n\ngo 1.26\n",
		"a.go":              "package m\n\nimport \"os\"\n\nfunc Close(f *os.File) error { return closed(f) }\n",
		"a_linux.go":        "package m\n\nimport \"os\"\n\nfunc closed(f *os.File) error { return f.Close() }\n",
		"a_darwin.go":       "package m\n\nimport \"os\"\n\nfunc closed(f *os.File) error { return f.Close() }\n",
		"a_test.go":         "package m\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Log(inTests) }\n",
		"a_linux_test.go":   "package m\n\nconst inTests = 1\n",
		"a_darwin_test.go":  "package m\n\nconst inTests = 1\n",
		"of/linux/linux.go": "//go:build linux\n\npackage linux\n\nconst Only = 1\n",
		"of/of.go":          "package of\n\nimport \"example.org/m/of/linux\"\n\nconst Only = linux.Only\n",
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(name, text)
	}
	for platform, want := range map[string]string{
		"linux/amd64":  "",
		"darwin/arm64": "build constraints exclude all Go files in ",
		"windows":      "platform: \"windows\" has no slash",
	} {
		if err := check(dir, platform, "./..."); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", platform, err, want)
		}
	}
	if err := check(dir, "darwin/arm64", "."); err != nil {
		t.Errorf("darwin/arm64: %v", err)
	}
	for _, want := range []string{"a.go:5:39: undefined: closed", "a_test.go:5:34: undefined: inTests"} {
		if err := check(dir, "windows/amd64", "."); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("windows/amd64: %v, want %q", err, want)
		}
	}
}

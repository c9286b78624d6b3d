package rig

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// Tool is what make has built for the tests of those who import the tool's package
// (hack/needs.sh), at the path that a variable has. The result of the running test depends on
// the files and directories of the project that are named, of which one pins the tool (see
// test/program).
func Tool(t testing.TB, name, variable string, dependsOn ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short: this needs %s, which is built", name)
	}
	path := os.Getenv(variable)
	if path == "" {
		need.Missing(t, name, "make test-system, which builds it and sets "+variable)
	}
	root, err := Root()
	Must(t, err)
	for _, of := range dependsOn {
		Must(t, filepath.WalkDir(filepath.Join(root, of), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				_, err = os.ReadFile(path)
			}
			return err
		}))
	}
	return path
}

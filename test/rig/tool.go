package rig

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// Tool returns the path of a tool that make has built, from an environment variable. make builds it for packages that
// import the tool's package (hack/needs.sh). The result of the running test then depends on the files and directories
// in dependsOn; one of them pins the tool (see test/program).
func Tool(t testing.TB, name, variable string, dependsOn ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short: this needs %s, which is built", name)
	}
	path := os.Getenv(variable)
	if path == "" {
		need.Missing(t, name, "make test-system, which builds it and sets "+variable)
	}
	DependsOn(t, dependsOn...)
	return path
}

// DependsOn makes the cached result of the running test depend on files and directories, by reading them. Their paths are
// relative to the root. A test whose programs read files needs it.
func DependsOn(t testing.TB, paths ...string) {
	t.Helper()
	root, err := Root()
	Must(t, err)
	for _, of := range paths {
		Must(t, filepath.WalkDir(filepath.Join(root, of), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				_, err = os.ReadFile(path)
			}
			return err
		}))
	}
}

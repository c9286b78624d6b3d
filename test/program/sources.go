package program

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// sources are the files and directories of the module that the program and its
// image are made of. The module's own directory is not read: it changes with
// every build.
var sources = []string{"go.mod", "go.sum", "main.go", "api", "config", "controllers", "httpapi", "internal", ".ko.yaml", "hack/image"}

// DependOnSources makes the result of the running test depend on the sources of
// the program. "go test" keeps a result for as long as what the test itself is
// made of and what it opened stay the same, and it knows nothing of a program
// that is built beside it: so each directory of the sources is opened here. What
// is opened before the tests run, in TestMain, does not count.
var DependOnSources = sync.OnceValue(func() error {
	root, err := rig.Root()
	if err != nil {
		return err
	}
	for _, name := range sources {
		err := filepath.WalkDir(filepath.Join(root, name), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return fmt.Errorf("look through the sources: %w", err)
		}
	}
	return nil
})

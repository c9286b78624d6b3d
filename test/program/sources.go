package program

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// sources are the files and directories from which the program and its image are built. They exclude the
// directory of the module itself, because it changes with every build.
var sources = []string{"go.mod", "go.sum", "main.go", "api", "clients/go", "config", "controllers", "httpapi", "internal", ".ko.yaml", "hack/image"}

// DependOnSources makes the result of the running test depend on the sources of the program. "go test" caches a result
// until the test's own code or a file that the test opened changes. It does not know about a separately built program.
// Therefore this function opens each directory of the sources. Files that TestMain opens before the tests run do not
// count.
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

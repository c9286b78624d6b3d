package migrated

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Dir creates a data directory with a database of the newest schema, and returns its path.
// No key server has used the database. The directory is removed when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	content, err := file()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, sqlite.DatabaseFile), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// file returns the content of the file of a migrated database. After Close, the log of
// the database is empty.
var file = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "migrated")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a directory for temporary files
	s, err := sqlstore.Open(context.Background(), sqlstore.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, sqlite.DatabaseFile))
})

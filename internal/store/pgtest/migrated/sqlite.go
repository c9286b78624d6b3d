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

// Dir creates a data directory with a database as the migrations leave it, and returns its
// path. No key server has started on it. It is removed when the test ends.
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

// file returns the content of a migrated database. A closed store leaves nothing in the
// log.
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

package sqlstore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// After a clean stop the database is one file. So a copy of that file is a backup.
func TestACleanStopFoldsTheLogIn(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s.UseRowKey(rowKey(t))
	if err := s.Update(t.Context(), func(tx *sqlstore.Tx) error { return tx.PutSetting(t.Context(), "name", []byte("value")) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(filepath.Join(dir, "keyserver.db"+side)); !os.IsNotExist(err) {
			t.Errorf("keyserver.db%s is still there: %v", side, err)
		}
	}
}

// Reading the audit log of a stopped server leaves no file behind.
func TestReadingLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := sqlstore.OpenReadOnly(t.Context(), sqlstore.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.AuditSnapshot(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("the directory holds %v, %v", files, err)
	}
}

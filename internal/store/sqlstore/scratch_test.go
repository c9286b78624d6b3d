package sqlstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestScratch checks that NewScratch removes the directory of a killed process but not of a running
// process, and that no other user can read the directory.
func TestScratch(t *testing.T) {
	for kind, make := range map[string]func(t *testing.T) (sqlstore.Config, string, string){
		"SQLite": func(t *testing.T) (sqlstore.Config, string, string) {
			dir := filepath.Join(t.TempDir(), "new")
			return sqlstore.Config{Dir: dir}, dir, sqlite.RestoringFile + "-scratch-"
		},
		"PostgreSQL": func(t *testing.T) (sqlstore.Config, string, string) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			return sqlstore.Config{URL: "postgres://nowhere/x"}, dir, "keyserver-restore-"
		},
	} {
		t.Run(kind, func(t *testing.T) {
			cfg, parent, name := make(t)
			rig.Must(t, os.MkdirAll(parent, 0o700))
			left := filepath.Join(parent, name+"1234")
			rig.Must(t, os.MkdirAll(filepath.Join(left, "copy"), 0o700))
			rig.Must(t, os.WriteFile(filepath.Join(left, "copy", sqlite.DatabaseFile), []byte("plain"), 0o600))
			s, err := sqlstore.NewScratch(cfg)
			rig.Must(t, err)
			if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("what was left is there: %v", err)
			}
			for _, dir := range []string{s.Dir, filepath.Dir(s.Dir)} {
				if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s: %v, %v", dir, info, err)
				}
			}
			rig.Must(t, os.WriteFile(filepath.Join(s.Dir, "copy"), nil, 0o600))
			other, err := sqlstore.NewScratch(cfg)
			switch {
			case kind == "SQLite" && !errors.Is(err, sqlstore.ErrInUse):
				t.Errorf("two restores into one directory: %v", err)
			case kind == "PostgreSQL":
				rig.Must(t, err)
				rig.Must(t, other.Close())
			}
			if _, err := os.Stat(s.Dir); err != nil {
				t.Errorf("it was taken away: %v", err)
			}
			rig.Must(t, errors.Join(s.Close(), s.Close()))
			if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
				t.Errorf("%v is left, %v", entries, err)
			}
		})
	}
	t.Run("another file", func(t *testing.T) {
		dir := t.TempDir()
		rig.Must(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600))
		if _, err := sqlstore.NewScratch(sqlstore.Config{Dir: dir}); !errors.Is(err, sqlstore.ErrUnusable) {
			t.Error(err)
		}
	})
}

package archive_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestPipesAreNotWaitedFor checks that a pipe in the directory of an archive does not block a verification. An attacker
// may have created it.
func TestPipesAreNotWaitedFor(t *testing.T) {
	h := newHouse(t, sqlstore.Config{Dir: t.TempDir()})
	h.write(t, archive.Rows)
	dir := filepath.Join(t.TempDir(), "archive")
	if err := h.keeper(dir, 0).passes(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{".json", ".checkpoint", ".rows.zst", ".json.attrs"} {
		for kind, put := range map[string]func(path string) error{
			"a pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
			"a link": func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			object := filepath.Join(dir, name(0, suffix))
			kept := filepath.Join(t.TempDir(), "kept")
			err := os.Rename(object, kept)
			beside := errors.Is(err, os.ErrNotExist)
			if err != nil && !beside {
				t.Fatal(err)
			}
			if err := put(object); err != nil {
				t.Fatal(err)
			}
			_, err = archive.Verify(t.Context(), open(t, dir), h.signer.Verifier)
			if beside && err != nil || !beside && (!errors.Is(err, archive.ErrDamaged) || !strings.Contains(err.Error(), "is not a regular file")) {
				t.Errorf("%s as %s: %v", kind, suffix, err)
			}
			removeFile(t, object)
			if !beside {
				if err := os.Rename(kept, object); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := archive.Show(t.Context(), open(t, dir), keyserver.AuditFilter{}, 1, 10, func(*keyserver.AuditEntry) error { return nil }); err != nil {
		t.Error(err)
	}
}

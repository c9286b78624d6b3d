package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// disk is a small volume that can be filled.
type disk struct{ dir string }

// diskBytes is enough for a run of ten minutes.
const diskBytes = "768m"

// newDisk mounts a volume, or returns nil if this process may not mount one.
func newDisk(t testing.TB) *disk {
	t.Helper()
	dir := t.TempDir()
	if err := rig.Tmpfs(t, dir, "mode=0700,size="+diskBytes); err != nil {
		t.Logf("no disk is filled in this run: this machine mounts none for tests: %v", err)
		return nil
	}
	return &disk{dir}
}

// path returns a directory on the volume, or a temporary directory if there is no volume.
func (d *disk) path(t testing.TB) string {
	t.Helper()
	if d == nil {
		return t.TempDir()
	}
	return d.dir
}

func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

func (d *disk) fill(t testing.TB) {
	t.Helper()
	f, err := os.Create(d.ballast())
	rig.Must(t, err)
	defer f.Close()
	for piece := make([]byte, 1<<20); len(piece) > 0; {
		n, err := f.Write(piece)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			piece = piece[:n/2]
		case err != nil:
			t.Fatal(err)
		}
	}
}

func (d *disk) free(t testing.TB) {
	t.Helper()
	rig.Must(t, os.Remove(d.ballast()))
}

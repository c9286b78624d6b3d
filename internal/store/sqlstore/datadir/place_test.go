package datadir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestPlace checks that Check detects a missing file, and another file with the same
// content.
func TestPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	rig.Must(t, os.WriteFile(path, []byte("content"), 0o600))
	open, err := os.Open(path)
	rig.Must(t, err)
	defer open.Close()
	var p datadir.Place
	if p.Opened(filepath.Join(dir, "none")) == nil {
		t.Error("a file that is not there was remembered")
	}
	rig.Must(t, p.Opened(path))
	p.Needed(path + "-log")
	if p.Check() == nil {
		t.Error("a file that is needed is not there")
	}
	rig.Must(t, os.WriteFile(path+"-log", nil, 0o600))
	rig.Must(t, p.Check())
	rig.Must(t, os.Remove(path))
	if p.Check() == nil {
		t.Error("a file that is open is not there")
	}
	rig.Must(t, os.WriteFile(path, []byte("content"), 0o600))
	if p.Check() == nil {
		t.Error("another file is there")
	}
	p.Closed(path)
	rig.Must(t, p.Check())
}

// BenchmarkPlace measures the cost of Check for each commit.
func BenchmarkPlace(b *testing.B) {
	dir := b.TempDir()
	var p datadir.Place
	for _, name := range []string{"keyserver.db", "keyserver.db-wal", "audit.journal"} {
		path := filepath.Join(dir, name)
		rig.Must(b, os.WriteFile(path, nil, 0o600))
		rig.Must(b, p.Opened(path))
	}
	for b.Loop() {
		rig.Must(b, p.Check())
	}
}

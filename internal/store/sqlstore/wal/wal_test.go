package wal_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the writer of the log

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/wal"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// written returns the path of a database with a log, the content of the log, and the
// content of the database file before the log was written.
func written(t *testing.T) (path string, log, base []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "database")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=wal_autocheckpoint(0)")
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, db.Close()) })
	db.SetMaxOpenConns(1)
	run := func(text string) {
		_, err := db.ExecContext(t.Context(), text)
		rig.Must(t, err)
	}
	run(`CREATE TABLE rows (n INTEGER, text TEXT)`)
	run(`PRAGMA wal_checkpoint(TRUNCATE)`)
	base, err = os.ReadFile(path)
	rig.Must(t, err)
	for i := range 20 {
		run(fmt.Sprintf(`INSERT INTO rows VALUES (%d, hex(randomblob(3000)))`, i))
	}
	log, err = os.ReadFile(path + "-wal")
	rig.Must(t, err)
	return path, log, base
}

// Scan ignores frames after the last complete transaction, frames of another log, and
// damaged frames.
func TestScanAndApply(t *testing.T) {
	_, log, base := written(t)
	h, err := wal.ParseHeader(log[:wal.HeaderSize])
	rig.Must(t, err)
	end, there, err := h.Scan(bytes.NewReader(log), h.Start)
	if err != nil || !there || end.Frames != (int64(len(log))-wal.HeaderSize)/h.FrameSize() {
		t.Fatalf("%+v, %v, %v", end, there, err)
	}
	cut := log[:int64(len(log))-h.FrameSize()/2]
	short, _, err := h.Scan(bytes.NewReader(cut), h.Start)
	if err != nil || short.Frames >= end.Frames || short.Frames == 0 {
		t.Errorf("a log that is cut: %+v, %v", short, err)
	}
	flipped := bytes.Clone(log)
	flipped[wal.HeaderSize+h.FrameSize()*short.Frames/2+100] ^= 1
	if at, _, err := h.Scan(bytes.NewReader(flipped), h.Start); err != nil || at.Frames >= short.Frames {
		t.Errorf("a flipped bit: %+v, %v", at, err)
	}
	other := end
	other.Sum[0]++
	if _, there, _ := h.Scan(bytes.NewReader(log), other); there {
		t.Error("a place with another checksum is of the log")
	}
	other = end
	other.Salts++
	if _, there, _ := h.Scan(bytes.NewReader(log), other); there {
		t.Error("a place in another log is of this one")
	}

	apply := func(log []byte, from, to wal.Position) (string, error) {
		path := filepath.Join(t.TempDir(), "copy")
		rig.Must(t, os.WriteFile(path, base, 0o600))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		rig.Must(t, err)
		defer f.Close()
		return path, h.Apply(h.Frames(bytes.NewReader(log), from, to), from, to, f)
	}
	for name, spoiled := range map[string][]byte{"cut": cut, "flipped": flipped} {
		if _, err := apply(spoiled, h.Start, end); !errors.Is(err, wal.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	path, err := apply(log, h.Start, end)
	rig.Must(t, err)
	db, err := sql.Open("sqlite", "file:"+path)
	rig.Must(t, err)
	defer db.Close()
	var rows int
	var sound string
	rig.Must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM rows`).Scan(&rows))
	rig.Must(t, db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&sound))
	if rows != 20 || sound != "ok" {
		t.Errorf("%d rows, %s", rows, sound)
	}
}

func TestWhatIsNoHeader(t *testing.T) {
	_, log, _ := written(t)
	for i := range wal.HeaderSize {
		raw := bytes.Clone(log[:wal.HeaderSize])
		raw[i] ^= 1
		if _, err := wal.ParseHeader(raw); !errors.Is(err, wal.ErrDamaged) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	if _, found, err := wal.ReadHeader(bytes.NewReader(nil)); found || err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("an empty file: %v, %v", found, err)
	}
}

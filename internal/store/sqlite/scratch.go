package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"golang.org/x/sys/unix"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// Names of directories for copies: in the directory of the database that is to be made,
// and, where that is PostgreSQL, among temporary files.
const (
	scratchInside = RestoringFile + "-scratch-"
	scratchBeside = "keyserver-restore-"
)

// Scratch is a directory for a copy of a database that is put together before it is
// restored. Nobody else can read what is in it. It is held by a lock, so that what a
// process that was killed has left can be told from what another one is at.
type Scratch struct {
	Dir string // for the database, which takes a lock of its own

	parent string
	lock   *os.File
}

// NewScratch makes one where there is room for the database: in its directory, or in that of
// temporary files if d is nil. It refuses a directory that is not empty (ErrUnusable,
// ErrInUse), and removes what a process that was killed has left. It has to be closed.
func NewScratch(d *Database) (_ *Scratch, err error) {
	parent, name := os.TempDir(), scratchBeside
	if d != nil {
		lock, failed := datadir.Lock(d.Dir, d.Log)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
		if err := d.vacant(); err != nil {
			return nil, err
		}
		parent, name = d.Dir, scratchInside
	} else if _, err := os.Stat(parent); err != nil {
		return nil, sqldb.Refuse(sqldb.ErrUnusable, "the directory of temporary files %s, in which a replica is put together, cannot be used: %s; make it, or name another one by TMPDIR",
			parent, datadir.ReasonOf(err))
	}
	busy, err := sweepScratch(parent, name)
	switch {
	case err != nil:
		return nil, err
	case busy && name == scratchInside:
		return nil, sqldb.Refuse(sqldb.ErrInUse, "another process restores into %s", parent)
	}
	return makeScratch(parent, name)
}

func makeScratch(in, name string) (_ *Scratch, err error) {
	parent, err := os.MkdirTemp(in, name) // 0700
	if err != nil {
		return nil, sqldb.Refuse(sqldb.ErrUnusable, "nothing can be written in %s: %s", in, datadir.ReasonOf(err))
	}
	s := &Scratch{Dir: filepath.Join(parent, "copy"), parent: parent}
	var free bool
	s.lock, free, err = lockScratch(parent)
	switch {
	case err != nil:
	case !free:
		return nil, sqldb.Refuse(sqldb.ErrInUse, "another process took %s", parent) // and removes it
	default:
		err = os.Mkdir(s.Dir, 0o700)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(), os.RemoveAll(parent))
	}
	return s, nil
}

// lockScratch takes a directory, and answers false where another process has it.
func lockScratch(dir string) (*os.File, bool, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, f.Close()
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, true, nil
}

// sweepScratch removes what processes of this user that were killed have left, and answers whether
// another one is at work.
func sweepScratch(parent, name string) (busy bool, err error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return false, sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be read: %s", parent, datadir.ReasonOf(err))
	}
	for _, e := range entries {
		var s unix.Stat_t
		dir := filepath.Join(parent, e.Name())
		if !strings.HasPrefix(e.Name(), name) || !e.IsDir() || unix.Lstat(dir, &s) != nil || int(s.Uid) != os.Getuid() {
			continue
		}
		lock, free, failed := lockScratch(dir)
		switch {
		case errors.Is(failed, fs.ErrNotExist):
		case failed != nil:
			err = errors.Join(err, failed)
		case !free:
			busy = true
		default:
			err = errors.Join(err, os.RemoveAll(dir), lock.Close())
		}
	}
	return busy, err
}

// Close removes it. Closing again does nothing.
func (s *Scratch) Close() error {
	if s.lock == nil {
		return nil
	}
	lock := s.lock
	s.lock = nil
	return errors.Join(os.RemoveAll(s.parent), lock.Close())
}

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

// Prefixes of the names of scratch directories: in the directory of the new database, and, for
// PostgreSQL, in the directory for temporary files.
const (
	scratchInside = RestoringFile + "-scratch-"
	scratchBeside = "keyserver-restore-"
)

// Scratch is a temporary directory in which a replica is rebuilt before it is restored. No other
// user can read it. Its lock shows whether the process that created it still runs.
type Scratch struct {
	Dir string // directory of the database, which has its own lock

	parent string
	lock   *os.File
}

// NewScratch creates a Scratch in the directory of d, or among temporary files if d is nil. It
// rejects a directory that is not empty (ErrUnusable) or in use (ErrInUse). It removes the scratch
// directories of killed processes. The caller has to close the Scratch.
func NewScratch(d *Database) (_ *Scratch, err error) {
	parent, name := os.TempDir(), scratchBeside
	if d != nil {
		lock, failed := datadir.Lock(d.Dir, d.Log)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
		if err := d.checkEmpty(); err != nil {
			return nil, err
		}
		parent, name = d.Dir, scratchInside
	} else if _, err := os.Stat(parent); err != nil {
		return nil, sqldb.Refuse(sqldb.ErrUnusable, "the directory for temporary files %s, in which the replica is rebuilt, cannot be used: %s; create it, or set TMPDIR to another one",
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
	parent, err := os.MkdirTemp(in, name) // creates it with mode 0700
	if err != nil {
		return nil, sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be written: %s", in, datadir.ReasonOf(err))
	}
	s := &Scratch{Dir: filepath.Join(parent, "copy"), parent: parent}
	var free bool
	s.lock, free, err = lockScratch(parent)
	switch {
	case err != nil:
	case !free:
		return nil, sqldb.Refuse(sqldb.ErrInUse, "another process uses %s", parent) // that process will remove parent
	default:
		err = os.Mkdir(s.Dir, 0o700)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(), os.RemoveAll(parent))
	}
	return s, nil
}

// lockScratch locks a directory. It returns false if another process has locked it.
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

// sweepScratch removes the scratch directories of killed processes of this user. It reports whether a running process
// uses a scratch directory.
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

// Close removes the directory. Closing again does nothing.
func (s *Scratch) Close() error {
	if s.lock == nil {
		return nil
	}
	lock := s.lock
	s.lock = nil
	return errors.Join(os.RemoveAll(s.parent), lock.Close())
}

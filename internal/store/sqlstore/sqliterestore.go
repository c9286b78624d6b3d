package sqlstore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// RestoringFile is the name that a database has in its directory until it is whole.
const RestoringFile = DatabaseFile + "." + restoringSuffix

// interrupted refuses a directory in which a database was being restored.
func (d *sqlite) interrupted() error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return refuse(ErrUnusable, "%s cannot be read: %s", d.dir, datadir.ReasonOf(err))
	}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), RestoringFile) }) {
		return refuse(ErrUnusable, "the restore of a database into %s was interrupted: run it again, or give another directory", d.dir)
	}
	return nil
}

// raise builds the database under another name. Nothing has to be durable before it is
// whole.
func (d *sqlite) raise(ctx context.Context) (pools, error) {
	lock, err := datadir.Lock(d.dir, d.log)
	if err != nil {
		return pools{}, err
	}
	p := pools{held: []io.Closer{lock}}
	if err := d.clear(); err != nil {
		return pools{}, errors.Join(err, p.close())
	}
	p.write, p.read = d.pool(hasty, 1), d.pool(hasty, 2)
	return p, nil
}

// clear makes an empty file in place of what an interrupted restore left. At each moment
// there is one that says that the rest is not whole.
func (d *sqlite) clear() error {
	if err := d.vacant(); err != nil {
		return err
	}
	if err := d.sweepAround(); err != nil {
		return err
	}
	if err := datadir.CreatePrivate(d.path() + "-new"); err != nil {
		return err
	}
	return os.Rename(d.path()+"-new", d.path())
}

// vacant refuses a directory that holds anything but what an interrupted restore left.
func (d *sqlite) vacant() error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return refuse(ErrUnusable, "%s cannot be read: %s", d.dir, datadir.ReasonOf(err))
	}
	left := d.interrupted() != nil
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "lost+found", left && (strings.HasPrefix(name, RestoringFile) || name == journal.File || name == d.beside):
		default:
			return refuse(ErrUnusable, "%s is not empty: it holds %s; a backup is restored into a new directory, and replaces nothing", d.dir, name)
		}
	}
	return nil
}

// sweep removes what is not whole.
func (d *sqlite) sweep() error { return errors.Join(d.sweepAround(), remove(d.path())) }

// sweepAround leaves the file that says that there was a restore.
func (d *sqlite) sweepAround() error {
	_, err := sweepScratch(d.dir, scratchInside)
	entries, failed := os.ReadDir(d.dir)
	err = errors.Join(err, failed, remove(filepath.Join(d.dir, journal.File)))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), RestoringFile+"-") && !e.IsDir() {
			err = errors.Join(err, remove(filepath.Join(d.dir, e.Name())))
		}
	}
	return err
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// finish closes the database, makes it durable and gives it its name.
func (d *sqlite) finish(_ context.Context, db *DB) error {
	if err := db.Close(); err != nil {
		return err
	}
	f, err := os.OpenFile(d.path(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(d.path(), filepath.Join(d.dir, DatabaseFile)); err != nil {
		return err
	}
	return datadir.Sync(d.dir)
}

func (d *sqlite) raze(_ context.Context, db *DB) error { return errors.Join(db.Close(), d.sweep()) }

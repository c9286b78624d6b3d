package sqlite

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// RestoringFile is the name that a database has in its directory until it is whole.
const RestoringFile = DatabaseFile + "." + sqldb.RestoringSuffix

// interrupted refuses a directory in which a database was being restored.
func (d *Database) interrupted() error {
	entries, err := os.ReadDir(d.Dir)
	if err != nil {
		return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be read: %s", d.Dir, datadir.ReasonOf(err))
	}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), RestoringFile) }) {
		return sqldb.Refuse(sqldb.ErrUnusable, "the restore of a database into %s was interrupted: run it again, or give another directory", d.Dir)
	}
	return nil
}

// Raise builds the database under another name. Nothing has to be durable before it is
// whole.
func (d *Database) Raise(ctx context.Context) (sqldb.Pools, error) {
	lock, err := datadir.Lock(d.Dir, d.Log)
	if err != nil {
		return sqldb.Pools{}, err
	}
	p := sqldb.Pools{Held: []io.Closer{lock}}
	if err := d.clear(); err != nil {
		return sqldb.Pools{}, errors.Join(err, p.Close())
	}
	p.Write, p.Read = d.Pool(hasty, 1), d.Pool(hasty, 2)
	return p, nil
}

// clear makes an empty file in place of what an interrupted restore left. At each moment
// there is one that says that the rest is not whole.
func (d *Database) clear() error {
	if err := d.vacant(); err != nil {
		return err
	}
	if err := d.sweepAround(); err != nil {
		return err
	}
	if err := datadir.CreatePrivate(d.Path() + "-new"); err != nil {
		return err
	}
	return os.Rename(d.Path()+"-new", d.Path())
}

// vacant refuses a directory that holds anything but what an interrupted restore left.
func (d *Database) vacant() error {
	entries, err := os.ReadDir(d.Dir)
	if err != nil {
		return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be read: %s", d.Dir, datadir.ReasonOf(err))
	}
	left := d.interrupted() != nil
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "lost+found", left && (strings.HasPrefix(name, RestoringFile) || name == journal.File || name == d.Beside):
		default:
			return sqldb.Refuse(sqldb.ErrUnusable, "%s is not empty: it holds %s; a backup is restored into a new directory, and replaces nothing", d.Dir, name)
		}
	}
	return nil
}

// sweep removes what is not whole.
func (d *Database) sweep() error { return errors.Join(d.sweepAround(), remove(d.Path())) }

// sweepAround leaves the file that says that there was a restore.
func (d *Database) sweepAround() error {
	_, err := sweepScratch(d.Dir, scratchInside)
	entries, failed := os.ReadDir(d.Dir)
	err = errors.Join(err, failed, remove(filepath.Join(d.Dir, journal.File)))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), RestoringFile+"-") && !e.IsDir() {
			err = errors.Join(err, remove(filepath.Join(d.Dir, e.Name())))
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

// Finish closes the database, makes it durable and gives it its name.
func (d *Database) Finish(_ context.Context, db *sqldb.DB) error {
	if err := db.Close(); err != nil {
		return err
	}
	f, err := os.OpenFile(d.Path(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(d.Path(), filepath.Join(d.Dir, DatabaseFile)); err != nil {
		return err
	}
	return datadir.Sync(d.Dir)
}

// Raze removes a database that was not restored to its end.
func (d *Database) Raze(_ context.Context, db *sqldb.DB) error {
	return errors.Join(db.Close(), d.sweep())
}

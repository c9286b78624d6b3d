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

// RestoringFile is the name of the database file until a restore is complete.
const RestoringFile = DatabaseFile + "." + sqldb.RestoringSuffix

// interrupted returns an error if a restore into the directory was interrupted.
func (d *Database) interrupted() error {
	entries, err := os.ReadDir(d.Dir)
	if err != nil {
		return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be read: %s", d.Dir, datadir.ReasonOf(err))
	}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), RestoringFile) }) {
		return sqldb.Refuse(sqldb.ErrUnusable, "the restore of a database into %s was interrupted; run it again, or name another directory", d.Dir)
	}
	return nil
}

// ClaimEmpty creates an empty database under the name RestoringFile. Writes need not be durable
// before the restore is complete.
func (d *Database) ClaimEmpty(ctx context.Context) (sqldb.Pools, error) {
	lock, err := datadir.Lock(d.Dir, d.Log)
	if err != nil {
		return sqldb.Pools{}, err
	}
	p := sqldb.Pools{Closers: []io.Closer{lock}}
	if err := d.clear(); err != nil {
		return sqldb.Pools{}, errors.Join(err, p.Close())
	}
	p.Write, p.Read = d.Pool(nonDurable, 1), d.Pool(nonDurable, 2)
	return p, nil
}

// clear replaces the files of an interrupted restore by an empty file. RestoringFile exists at any time, because it
// shows that the other files are incomplete.
func (d *Database) clear() error {
	if err := d.checkEmpty(); err != nil {
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

// checkEmpty rejects a directory that is not empty, unless its files are from an interrupted restore.
func (d *Database) checkEmpty() error {
	entries, err := os.ReadDir(d.Dir)
	if err != nil {
		return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be read: %s", d.Dir, datadir.ReasonOf(err))
	}
	left := d.interrupted() != nil
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "lost+found", left && (strings.HasPrefix(name, RestoringFile) || name == journal.File || name == d.CallerFile):
		default:
			return sqldb.Refuse(sqldb.ErrUnusable, "%s is not empty: it contains %s; restore into a new directory", d.Dir, name)
		}
	}
	return nil
}

// sweep removes an incomplete database.
func (d *Database) sweep() error { return errors.Join(d.sweepAround(), remove(d.Path())) }

// sweepAround removes the files and scratch directories of an incomplete restore, except RestoringFile.
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

// Finish closes the database, makes it durable and gives it its final name.
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

// Discard removes a database whose restore was not completed.
func (d *Database) Discard(_ context.Context, db *sqldb.DB) error {
	return errors.Join(db.Close(), d.sweep())
}

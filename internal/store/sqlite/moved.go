package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// MovedFile is a file in the directory of an embedded database that was moved. It names the new place. While the file
// exists, no process changes the database: after a move, only one of the two databases may be in use.
const MovedFile = DatabaseFile + ".moved"

const maxMoved = 4096

// Moved returns where an embedded database was moved to, or "" if it was not moved.
func Moved(dir string) (where string, err error) {
	f, err := os.Open(filepath.Join(dir, MovedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be read: %s", filepath.Join(dir, MovedFile), datadir.ReasonOf(err))
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, maxMoved))
	if err != nil {
		return "", sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be read: %s", f.Name(), datadir.ReasonOf(err))
	}
	if where = strings.TrimSpace(string(text)); where == "" {
		where = "an unknown place"
	}
	return where, nil
}

// MarkMoved creates MovedFile, so that no process uses the database in dir again. The caller holds
// the lock of the directory (sqlstore.OpenToMove).
func MarkMoved(dir, where string) error {
	path := filepath.Join(dir, MovedFile)
	whole := path + ".new"
	if err := remove(whole); err != nil { // a killed process may have left the file
		return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be written: %s", dir, datadir.ReasonOf(err))
	}
	f, err := os.OpenFile(whole, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be written: %s", dir, datadir.ReasonOf(err))
	}
	_, err = fmt.Fprintln(f, where)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), remove(whole))
	}
	if err := os.Rename(whole, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return datadir.Sync(dir)
}

// checkNotMoved returns an error if the database of the directory was moved elsewhere.
func (d *Database) checkNotMoved() error {
	if d.Moving {
		return nil
	}
	where, err := Moved(d.Dir)
	if err != nil || where == "" {
		return err
	}
	return sqldb.Refuse(sqldb.ErrUnusable, "the database in %s was moved to %s; serve from there with --database-url; "+
		"to use this copy instead, without later changes, stop every server there permanently, and remove %s",
		d.Dir, where, filepath.Join(d.Dir, MovedFile))
}

package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// MovedFile is beside an embedded database that was moved elsewhere, and says where to. As
// long as it is there no process changes the database: two that have gone on from one state
// are no key server any more.
const MovedFile = DatabaseFile + ".moved"

// maxMoved bounds what is read of it.
const maxMoved = 4096

// OpenToMove opens an embedded database that is at rest, to copy all of it. It makes and
// migrates nothing: there has to be one, of exactly the version of this program. Rows that a
// process which was killed has left in the journal go to their tables, as at any start.
func OpenToMove(ctx context.Context, cfg Config) (*Store, error) {
	as, err := OpenReadOnly(ctx, cfg)
	if err != nil {
		return nil, err
	}
	newer := as.Ahead()
	if err := as.Close(); err != nil {
		return nil, err
	}
	if newer != "" {
		return nil, refuse(ErrNewerVersion, "%s; move it with the program of the release that it is of", newer)
	}
	cfg.moving = true
	return Open(ctx, cfg)
}

// Moved answers where an embedded database was moved to, empty where it was not.
func Moved(dir string) (where string, err error) {
	f, err := os.Open(filepath.Join(dir, MovedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", refuse(ErrUnusable, "%s cannot be read: %s", filepath.Join(dir, MovedFile), datadir.ReasonOf(err))
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, maxMoved))
	if err != nil {
		return "", refuse(ErrUnusable, "%s cannot be read: %s", f.Name(), datadir.ReasonOf(err))
	}
	if where = strings.TrimSpace(string(text)); where == "" {
		where = "another place, of which the file says nothing"
	}
	return where, nil
}

// MarkMoved has nobody work on the embedded database of a directory any more. The caller
// holds that (OpenToMove).
func MarkMoved(dir, where string) error {
	path := filepath.Join(dir, MovedFile)
	whole := path + ".new"
	if err := remove(whole); err != nil { // of one that was killed
		return refuse(ErrUnusable, "%s cannot be written: %s", dir, datadir.ReasonOf(err))
	}
	f, err := os.OpenFile(whole, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return refuse(ErrUnusable, "%s cannot be written: %s", dir, datadir.ReasonOf(err))
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

// stays refuses a directory whose database was moved elsewhere.
func (d *sqlite) stays() error {
	if d.moving {
		return nil
	}
	where, err := Moved(d.dir)
	if err != nil || where == "" {
		return err
	}
	return refuse(ErrUnusable, "the database in %s was moved to %s: serve from there, by --database-url; "+
		"to go on here all the same, without what was written there since, stop every server there for good, and remove %s",
		d.dir, where, filepath.Join(d.dir, MovedFile))
}

// PlaceOf names a database for people, without what opens it.
func PlaceOf(cfg Config) string {
	if cfg.Dir != "" {
		return "the embedded database in " + cfg.Dir
	}
	c, err := (&postgres{url: cfg.URL}).config()
	if err != nil {
		return "a PostgreSQL database"
	}
	var hosts []string
	for _, one := range eachHost(c) {
		hosts = append(hosts, net.JoinHostPort(one.Host, strconv.Itoa(int(one.Port))))
	}
	return fmt.Sprintf("the PostgreSQL database %s on %s", c.Database, strings.Join(hosts, ", "))
}

// FinishMove is Finish for a database that goes on elsewhere as it was: sessions stay open,
// and the change feed goes on from where it is. moved is called when all is done but for the
// name: from then on nobody may change what it was copied from.
func (r *Restore) FinishMove(ctx context.Context, row keyserver.AuditEntry, moved func() error) error {
	if err := r.store.writeAlone(ctx, func(in statements) error { return freeDuties(ctx, in) }); err != nil {
		return err
	}
	return r.end(ctx, row, moved)
}

package sqlstore

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/snapshot"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
)

// Restore is a database that is made from a Snapshot, and the Store of it.
type Restore struct {
	*snapshot.Restoring
	store *Store
}

// NewRestore makes an empty database of a version in a directory, or a PostgreSQL
// database, that is empty. It refuses any other (ErrUnusable, ErrInUse), and a version
// that this program does not know (ErrNewerVersion). It has to be finished or abandoned.
func NewRestore(ctx context.Context, cfg Config, schema int64) (*Restore, error) {
	cfg.restore = true
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	db, err := snapshot.Raise(ctx, dialectOf(cfg), cfg.options(), schema)
	if err != nil {
		return nil, err
	}
	s := newStore(db, cfg)
	r, err := snapshot.BeginRestore(ctx, db, s.Trail, schema)
	if err != nil {
		return nil, err
	}
	return &Restore{r, s}, nil
}

// Store is the database, to look at once it is Loaded.
func (r *Restore) Store() *Store { return r.store }

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
		return nil, sqldb.Refuse(sqldb.ErrNewerVersion, "%s; move it with the program of the release that it is of", newer)
	}
	cfg.moving = true
	return Open(ctx, cfg)
}

// Log returns the log of a database that was opened to be shipped. It has to be
// closed before the Store is.
func (s *Store) Log() (*sqlite.Log, error) { return sqlite.NewLog(s.db, s.Durable) }

// PlaceOf names a database for people, without what opens it.
func PlaceOf(cfg Config) string {
	if cfg.Dir != "" {
		return "the embedded database in " + cfg.Dir
	}
	c, err := (&postgres.Database{URL: cfg.URL}).Config()
	if err != nil {
		return "a PostgreSQL database"
	}
	var hosts []string
	for _, one := range postgres.EachHost(c) {
		hosts = append(hosts, net.JoinHostPort(one.Host, strconv.Itoa(int(one.Port))))
	}
	return fmt.Sprintf("the PostgreSQL database %s on %s", c.Database, strings.Join(hosts, ", "))
}

// NewScratch makes one where there is room for the database: in its directory, or in that of
// temporary files for PostgreSQL. It refuses a directory that is not empty (ErrUnusable,
// ErrInUse), and removes what a process that was killed has left. It has to be closed.
func NewScratch(cfg Config) (*sqlite.Scratch, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	d, _ := dialectOf(cfg).(*sqlite.Database)
	return sqlite.NewScratch(d)
}

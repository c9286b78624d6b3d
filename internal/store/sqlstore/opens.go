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

// Restore is a database that is being made from a Snapshot, and its Store.
type Restore struct {
	*snapshot.Restoring
	store *Store
}

// NewRestore creates a database with a version of the schema, in an empty directory or an
// empty PostgreSQL database. It rejects any other (ErrUnusable, ErrInUse), and a version
// that this program does not know (ErrNewerVersion). The caller has to finish or abandon it.
func NewRestore(ctx context.Context, cfg Config, schema int64) (*Restore, error) {
	cfg.restore = true
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	db, err := snapshot.ClaimEmpty(ctx, dialectOf(cfg), cfg.options(), schema)
	if err != nil {
		return nil, err
	}
	s := newStore(db, cfg)
	r, err := snapshot.BeginRestore(ctx, db, s.AuditLog, schema)
	if err != nil {
		return nil, err
	}
	return &Restore{r, s}, nil
}

// Store returns the database, to be read after Loaded.
func (r *Restore) Store() *Store { return r.store }

// OpenToMove opens an embedded database that is at rest, to copy all of it. It creates and
// migrates nothing: the database must have exactly the version of this program. As at any
// start, rows that a killed process has left in the journal are written to the tables.
func OpenToMove(ctx context.Context, cfg Config) (*Store, error) {
	as, err := OpenReadOnly(ctx, cfg)
	if err != nil {
		return nil, err
	}
	newer := as.NewerWarning()
	if err := as.Close(); err != nil {
		return nil, err
	}
	if newer != "" {
		return nil, sqldb.Refuse(sqldb.ErrNewerVersion, "%s; to move it, use the program of the newer release", newer)
	}
	cfg.moving = true
	return Open(ctx, cfg)
}

// Log returns the log of a database that was opened with Shipped. It has to be closed before
// the Store.
func (s *Store) Log() (*sqlite.Log, error) { return sqlite.NewLog(s.db, s.Durable) }

// PlaceOf describes a database for people, without its credentials.
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

// NewScratch creates a Scratch on a volume with room for the database: in its directory, or
// among temporary files for PostgreSQL. It rejects a directory that is not empty
// (ErrUnusable, ErrInUse), and removes the copies of killed processes. The caller has to
// close it.
func NewScratch(cfg Config) (*sqlite.Scratch, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	d, _ := dialectOf(cfg).(*sqlite.Database)
	return sqlite.NewScratch(d)
}

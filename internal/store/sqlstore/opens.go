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

// Restore is a database that is being created from a Snapshot, and its Store.
type Restore struct {
	*snapshot.Restoring
	store *Store
}

// NewRestore creates a database with a schema version, in an empty directory or an empty
// PostgreSQL database. It rejects a target that is in use (ErrInUse) or not empty (ErrUnusable),
// and a version that this program does not know (ErrNewerVersion). The caller has to finish or
// abandon the Restore.
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

// Store returns the Store of the database. It can be read after Loaded.
func (r *Restore) Store() *Store { return r.store }

// OpenToMove opens an embedded database to copy it. No other process may use the database. It
// creates and migrates nothing: the database must have exactly the version of this program. It
// copies rows that a killed process has left in the journal to the tables.
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

// Log returns the write-ahead log of a database that was opened with Shipped. The caller has to
// close it before the Store.
func (s *Store) Log() (*sqlite.Log, error) { return sqlite.NewLog(s.db, s.Durable) }

// PlaceOf describes a database in messages, without its credentials.
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

// NewScratch creates a Scratch in the data directory, or among temporary files for PostgreSQL.
// See sqlite.NewScratch.
func NewScratch(cfg Config) (*sqlite.Scratch, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	d, _ := dialectOf(cfg).(*sqlite.Database)
	return sqlite.NewScratch(d)
}

// Package sqlstore stores the state of a key server in a database: SQLite in a directory, or
// PostgreSQL, which several replicas may share. Both use the same queries; sqldb.Dialect has the
// differences.
//
// Store and Tx have the same reads. Only Tx has writes. Store.Update runs one write transaction at a
// time on all replicas. It stores the changes in the same transaction. Their numbers follow the order
// of the commits.
package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/auditrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/snapshot"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Config selects the database. Exactly one of Dir and URL is set.
type Config struct {
	Dir string // SQLite: directory of the database keyserver.db
	URL string // PostgreSQL: URL of the database

	Clock       func() time.Time // default: time.Now
	Logger      *slog.Logger     // default: logs nothing
	KeptChanges int64            // default: 100,000

	// MaxConnections is the maximum number of connections to PostgreSQL; default: postgres.DefaultConnections.
	MaxConnections int

	// Shipped means that an SQLite database is replicated: only a Log copies the write-ahead log into
	// the database file. The caller then has to use a Log.
	Shipped bool

	// Beside is the name of a file that the caller of an SQLite Restore creates in Dir before Finish. A killed restore
	// may have left that file.
	Beside string

	journal journal.Options         // SQLite: only tests change the defaults
	discard func()                  // SQLite: called when an unusable journal is discarded; nil: rejects it
	moving  bool                    // SQLite: also opens a database that was moved elsewhere
	restore bool                    // the database has the name of an incomplete restore
	copied  *[]keyserver.AuditEntry // SQLite: the database is a copy, whose journal had these rows
}

func (c Config) options() sqldb.Options {
	return sqldb.Options{Clock: c.Clock, Logger: c.Logger, KeptChanges: c.KeptChanges}
}

func (c Config) complete() (Config, error) {
	if (c.Dir == "") == (c.URL == "") {
		return c, errors.New("set exactly one of data directory and database URL")
	}
	if c.Clock == nil {
		c.Clock = time.Now //nolint:forbidigo // the default of an injected clock
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = postgres.DefaultConnections
	}
	if c.MaxConnections < postgres.MinConnections {
		return c, fmt.Errorf("%d connections to the database are too few; give at least %d", c.MaxConnections, postgres.MinConnections)
	}
	return c, nil
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	reads
	*sqldb.Handle
	*auditrows.AuditLog
	*snapshot.Source
	sessionrows.Throttle
	db           *sqldb.DB
	insertProofs sqldb.Insert
}

// Open opens the database for this process. It creates a missing database and migrates an older one. It does not
// migrate a newer database that this program can work with (NewerWarning). It rejects a database of another program
// (ErrForeign), and a database of a version that is too new (ErrNewerVersion). It rejects a directory that another
// process uses (ErrInUse), and an unusable directory, schema or journal (ErrUnusable).
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	db, err := sqldb.Open(ctx, dialectOf(cfg), cfg.options())
	if err != nil {
		return nil, err
	}
	s := newStore(db, cfg)
	if err := s.Recover(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := db.Follow(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// OpenCopy opens a copy of an embedded database, to make a Snapshot of it. rows are the durable rows
// of the journal of the original. Some of them may be in the tables of the copy already.
func OpenCopy(ctx context.Context, dir string, rows []keyserver.AuditEntry) (*Store, error) {
	return Open(ctx, Config{Dir: dir, copied: &rows})
}

// OpenReadOnly opens a database that another process may use at the same time. It migrates nothing.
// It rejects an older database, and a newer database that this program cannot work with.
func OpenReadOnly(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	db, err := sqldb.OpenReadOnly(ctx, dialectOf(cfg), cfg.options())
	if err != nil {
		return nil, err
	}
	return newStore(db, cfg), nil
}

func newStore(db *sqldb.DB, cfg Config) *Store {
	trail := auditrows.New(db, auditrows.Options{Journal: cfg.journal, Discard: cfg.discard, Copied: cfg.copied})
	return &Store{
		reads: newReads(db.Statements), Handle: db.Handle, AuditLog: trail, Source: snapshot.NewSource(db, trail), Throttle: sessionrows.NewThrottle(db), db: db,
		insertProofs: sqldb.NewInsert(db.Dialect(), `INSERT INTO used_proofs (digest, expires)`, 2),
	}
}

// reads has the queries that Store and Tx share.
type reads struct {
	sql sqldb.Statements
	auditReads
	sessionReads
	trustReads
	sqldb.Feed
}

// Names for the types Reads and Writes of other packages, so that they can be embedded together.
type (
	auditReads    = auditrows.Reads
	auditWrites   = auditrows.Writes
	sessionReads  = sessionrows.Reads
	sessionWrites = sessionrows.Writes
	trustReads    = trustrows.Reads
	trustWrites   = trustrows.Writes
)

func newReads(in sqldb.Statements) reads {
	return reads{in, auditrows.NewReads(in), sessionrows.NewReads(in), trustrows.NewReads(in), sqldb.NewFeed(in)}
}

// visiting returns a copy of r that passes each row with a MAC to visit instead of checking the
// MAC.
func (r reads) visiting(visit func(row *rowmac.Row, mac []byte) error) reads {
	return newReads(r.sql.Visiting(visit))
}

func dialectOf(cfg Config) sqldb.Dialect {
	if cfg.Dir != "" {
		return &sqlite.Database{Dir: cfg.Dir, Log: cfg.Logger, Restoring: cfg.restore, Moving: cfg.moving, Shipped: cfg.Shipped, CallerFile: cfg.Beside}
	}
	return &postgres.Database{URL: cfg.URL, Connections: cfg.MaxConnections, Log: cfg.Logger, Restoring: cfg.restore}
}

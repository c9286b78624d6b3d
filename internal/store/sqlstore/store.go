// Package sqlstore keeps the state of a key server in a database: SQLite in a directory, or
// PostgreSQL, which several replicas may share. There is one set of queries; a dialect has the
// differences between the two.
//
// Reads are the same on a Store and in a write transaction. Writes exist only in Store.Update,
// which serialises them over all replicas. It records their changes in the same transaction, in a
// sequence whose order is the order of the commits.
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
	Dir string // SQLite: the database is Dir/keyserver.db
	URL string // PostgreSQL

	Clock       func() time.Time // default: the system's
	Logger      *slog.Logger     // default: discards
	KeptChanges int64            // default: 100,000

	// MaxConnections bounds all connections to PostgreSQL; default: DefaultConnections.
	MaxConnections int

	// Shipped, of SQLite, means that only a Log folds the log into the database. The caller then
	// has to use a Log.
	Shipped bool

	// Beside, of SQLite and a Restore, is the name of a file that the caller puts into Dir before
	// Finish. A killed restore may have left that file.
	Beside string

	journal journal.Options         // SQLite: other than the defaults only in tests
	discard func()                  // SQLite: called when an unusable journal is discarded; nil refuses it
	moving  bool                    // SQLite: also opens a database that was moved elsewhere
	restore bool                    // the database has the name of an incomplete one
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

// Open opens the database for this process. It creates a missing database and migrates an older one. It does not change
// a newer database that this program can work with (Ahead). It rejects a database of another program (ErrForeign), and
// a database of a version that is too new (ErrNewerVersion). It rejects a directory that another process uses
// (ErrInUse) or that cannot be used (ErrUnusable). Such an error is one sentence, and nothing was changed.
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

// OpenCopy opens the copy of an embedded database, to make a Snapshot of it. rows are the durable
// rows of its journal, some of which may be in the copy already.
func OpenCopy(ctx context.Context, dir string, rows []keyserver.AuditEntry) (*Store, error) {
	return Open(ctx, Config{Dir: dir, copied: &rows})
}

// OpenReadOnly opens a database that another process may be serving from. It migrates nothing. It
// rejects a database of an older version, and a newer one that this program cannot work with.
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

// Each package of rows names its queries Reads and Writes.
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

// visiting returns the same reads, which pass each row with a MAC to visit instead of checking
// it.
func (r reads) visiting(visit func(row *rowmac.Row, mac []byte) error) reads {
	return newReads(r.sql.Visiting(visit))
}

func dialectOf(cfg Config) sqldb.Dialect {
	if cfg.Dir != "" {
		return &sqlite.Database{Dir: cfg.Dir, Log: cfg.Logger, Restoring: cfg.restore, Moving: cfg.moving, Shipped: cfg.Shipped, Beside: cfg.Beside}
	}
	return &postgres.Database{URL: cfg.URL, Connections: cfg.MaxConnections, Log: cfg.Logger, Restoring: cfg.restore}
}

// Package sqlstore keeps the state of a key server in a database: SQLite in a
// directory of its own, or PostgreSQL, which several replicas may share. There
// is one set of queries; what differs between the two stands in a dialect.
//
// Reads are the same on a Store and inside a write transaction. Writes exist
// only inside Store.Update, which serialises them over all replicas and
// records what they changed in the same transaction, in a sequence whose order
// is the order of the commits.
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

// Config says where the state is kept. Exactly one of Dir and URL is set.
type Config struct {
	Dir string // SQLite: the database is Dir/keyserver.db
	URL string // PostgreSQL

	Clock       func() time.Time // default: the system's
	Logger      *slog.Logger     // default: discards
	KeptChanges int64            // default: 100,000

	// MaxConnections are those to PostgreSQL, all in all; default: DefaultConnections.
	MaxConnections int

	// Shipped, of SQLite, says that nothing but a Log folds the log into the database.
	// Whoever sets it has to use one.
	Shipped bool

	// Beside, of SQLite and a Restore, is the name of a file that the caller puts into Dir before
	// Finish, and that one that was killed may have left there.
	Beside string

	journal journal.Options         // SQLite: other than the defaults only in tests
	discard func()                  // SQLite: gives up a journal that is refused, and is told so
	moving  bool                    // SQLite: one that was moved elsewhere is opened all the same
	restore bool                    // the database has the names of one that is not whole yet
	copied  *[]keyserver.AuditEntry // SQLite: the database is a copy, whose journal had these rows
}

func (c Config) options() sqldb.Options {
	return sqldb.Options{Clock: c.Clock, Logger: c.Logger, KeptChanges: c.KeptChanges}
}

func (c Config) complete() (Config, error) {
	if (c.Dir == "") == (c.URL == "") {
		return c, errors.New("set either a data directory or a database URL")
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
		return c, fmt.Errorf("%d connections to the database are too few; it takes %d", c.MaxConnections, postgres.MinConnections)
	}
	return c, nil
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	reads
	*sqldb.Handle
	*auditrows.Trail
	*snapshot.Source
	sessionrows.Throttle
	db           *sqldb.DB
	insertProofs sqldb.Insert
}

// Open opens the database for this process, makes it where there is none and
// brings an older one up to date. One of a newer version stays as it is, where that
// lets this program work with it (Ahead). It refuses with one sentence, having changed
// nothing, a database of something else (ErrForeign), one from a version that is too
// new (ErrNewerVersion), and a directory that another process uses (ErrInUse) or
// that cannot be used (ErrUnusable).
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

// OpenCopy opens the copy of an embedded database, to make a Snapshot of it. rows are
// those that were durable in the journal beside it, of which it may have some already.
func OpenCopy(ctx context.Context, dir string, rows []keyserver.AuditEntry) (*Store, error) {
	return Open(ctx, Config{Dir: dir, copied: &rows})
}

// OpenReadOnly opens the database beside a process that may be serving from
// it. It migrates nothing and refuses a database of an older version, and of a newer one
// that this program cannot work with.
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
		reads: newReads(db.Statements), Handle: db.Handle, Trail: trail, Source: snapshot.NewSource(db, trail), Throttle: sessionrows.NewThrottle(db), db: db,
		insertProofs: sqldb.NewInsert(db.Dialect(), `INSERT INTO used_proofs (digest, expires)`, 2),
	}
}

// reads are the queries that a Store and a Tx have in common.
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

// visiting are the same reads, which show each covered row to visit instead of checking it.
func (r reads) visiting(visit func(row *rowmac.Row, mac []byte) error) reads {
	return newReads(r.sql.Visiting(visit))
}

func dialectOf(cfg Config) sqldb.Dialect {
	if cfg.Dir != "" {
		return &sqlite.Database{Dir: cfg.Dir, Log: cfg.Logger, Restoring: cfg.restore, Moving: cfg.moving, Shipped: cfg.Shipped, Beside: cfg.Beside}
	}
	return &postgres.Database{URL: cfg.URL, Connections: cfg.MaxConnections, Log: cfg.Logger, Restoring: cfg.restore}
}

package sqlstore

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/replication"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/stmtcache"
)

// pool is a pool of connections.
type pool = *sql.DB

// dialect is everything in which the databases differ.
type dialect interface {
	// open opens the pools after the checks that need no pool. It has to leave
	// what it refuses as it was.
	open(ctx context.Context) (pools, error)
	openReadOnly(ctx context.Context) (pools, error)

	// migrations are the files that goose applies.
	migrations() (goose.Dialect, fs.FS)
	// name is that of the database, in names of files.
	name() string
	// schemaOf lists what the schema has that concerns the tables.
	schemaOf(ctx context.Context, in statements, tables []string) ([]schemaObject, error)
	// lockMigrations keeps other processes from migrating until unlock.
	lockMigrations(ctx context.Context, db pool) (unlock func() error, err error)
	// tables counts the tables of the database, and those among them that have
	// the given name.
	tables(ctx context.Context, db pool, name string) (all, named int, err error)

	// runnerOn gives statements the place to run on.
	runnerOn(on stmtcache.Place) runner
	// outdated reports whether a connection has to be replaced, because new ones would have
	// other settings.
	outdated(conn *sql.Conn) bool
	// shared reports whether other processes may work on the database.
	shared() bool
	// alone commits one statement and answers how many rows it hit.
	alone(ctx context.Context, s *Store, text string, args ...any) (int64, error)
	// writable answers nil if the database takes writes.
	writable(ctx context.Context, s *Store) error
	// placeholders lists the parameters of a statement that inserts rows.
	placeholders(rows, columns int) string
	// statementContext is the context for the statements of a transaction that
	// must not be interrupted, or of one that is over in no time.
	statementContext(ctx context.Context) context.Context
	// begin starts a write transaction.
	begin() string
	// inPlace refuses a commit that would not be found again.
	inPlace() error
	// serialise makes the transaction wait until no other process has one, and names
	// what the database is now, where that can become another one. It answers
	// errLockHeld where it has waited long enough to look who has the lock (evict).
	serialise(ctx context.Context, in statements) (incarnation string, err error)
	// evict ends transactions of processes that sleep in them while others wait.
	evict(ctx context.Context, s *Store)
	// announce tells other processes, on commit, that there are changes.
	announce(ctx context.Context, in statements) error
	// follow starts to follow the changes of other processes, where there can be any.
	follow(ctx context.Context, s *Store) (*replication.Follower, error)
	// claimChain claims the lowest free audit chain.
	claimChain(ctx context.Context, s *Store) (audit.Chain, error)
	// recoverTrail brings rows of the trail that a process left elsewhere to their tables.
	recoverTrail(ctx context.Context, s *Store) error
	// unfilled reads rows of the trail that are in no table yet, where this process
	// does not write it, and where the tables end.
	unfilled(ctx context.Context, s *Store) (audit.Snapshot, []keyserver.AuditEntry, error)

	// setKeyMACs writes the MACs of keys.
	setKeyMACs(ctx context.Context, in statements, ids, macs [][]byte) error
	// setKeyWraps writes how keys are wrapped, and their MACs.
	setKeyWraps(ctx context.Context, in statements, ids, wrapped, macs [][]byte) error
	// claimRewrap claims that this process alone wraps keys anew, until release. It
	// answers nil where another one does.
	claimRewrap(ctx context.Context, s *Store) (release func(), err error)
	// sweepAudit removes some of the audit rows before the first, and answers whether
	// there are more; it makes room ahead where rows need it.
	sweepAudit(ctx context.Context, s *Store, first int64) (more bool, err error)
	// noteBlock notes what is in a block of audit rows, which is there as a whole or
	// not at all.
	noteBlock(ctx context.Context, s *Store, block int64, keys []keyInBlock, content blockContent) error
	// erase makes what was overwritten vanish from the files. It answers false where
	// somebody reads what was.
	erase(ctx context.Context, s *Store) (bool, error)
	// view opens a connection that sees the database as it is at this moment.
	view(ctx context.Context, s *Store) (view, error)
	// raise makes the empty database that is restored to, and takes it for this process.
	raise(ctx context.Context) (pools, error)
	// columns lists the tables and what columns they have.
	columns(ctx context.Context, in reads) ([]Table, error)
	// ready makes room for audit rows up to one, which are about to be loaded.
	ready(ctx context.Context, in statements, last int64) error
	// load inserts the rows of a table, in the transaction of a connection.
	load(ctx context.Context, on *sql.Conn, t Table, rows *pgcopy.Reader) error
	// finish closes a database that was restored, and gives it the name of a whole one.
	finish(ctx context.Context, s *Store) error
	// raze closes it, and removes what raise has made.
	raze(ctx context.Context, s *Store) error
	// chainsHeld counts the audit chains that processes write to just now.
	chainsHeld(ctx context.Context, in statements) (int, error)

	// classify says what a driver's error means.
	classify(err error) errorClass
	// full reports whether it means that the database's volume is.
	full(err error) bool
}

func dialectOf(cfg Config) dialect {
	if cfg.Dir != "" {
		return &sqlite{dir: cfg.Dir, log: cfg.Logger, restore: cfg.restore, moving: cfg.moving, shipped: cfg.Shipped, beside: cfg.Beside}
	}
	return &postgres{url: cfg.URL, connections: cfg.MaxConnections, log: cfg.Logger, restore: cfg.restore}
}

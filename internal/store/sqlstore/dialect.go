package sqlstore

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"

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

	// versionTable is the table in which goose notes what it applied.
	versionTable() string
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
	// writable answers nil if the database takes writes.
	writable(ctx context.Context, db *DB) error
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
	evict(ctx context.Context, db *DB)
	// announce tells other processes, on commit, that there are changes.
	announce(ctx context.Context, in statements) error
	// follow starts to follow the changes of other processes, where there can be any.
	follow(ctx context.Context, db *DB) (*replication.Follower, error)

	// setKeyMACs writes the MACs of keys.
	setKeyMACs(ctx context.Context, in statements, ids, macs [][]byte) error
	// setKeyWraps writes how keys are wrapped, and their MACs.
	setKeyWraps(ctx context.Context, in statements, ids, wrapped, macs [][]byte) error
	// claimRewrap claims that this process alone wraps keys anew, until release. It
	// answers nil where another one does.
	claimRewrap(ctx context.Context, db *DB) (release func(), err error)
	// erase makes what was overwritten vanish from the files. It answers false where
	// somebody reads what was.
	erase(ctx context.Context, db *DB) (bool, error)
	// classify says what a driver's error means.
	classify(err error) errorClass
	// full reports whether it means that the database's volume is.
	full(err error) bool
	// lostToAnother reports whether the database aborted a transaction in favor of another
	// one, so that it may succeed if it runs again.
	lostToAnother(err error) bool
}

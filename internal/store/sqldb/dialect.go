package sqldb

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/replication"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/stmtcache"
)

// Pool is a pool of connections.
type Pool = *sql.DB

// Dialect is everything in which the databases differ.
type Dialect interface {
	// Open opens the pools after the checks that need no pool. It has to leave
	// what it refuses as it was.
	Open(ctx context.Context) (Pools, error)
	OpenReadOnly(ctx context.Context) (Pools, error)

	// VersionTable is the table in which goose notes what it applied.
	VersionTable() string
	// Migrations are the files that goose applies.
	Migrations() (goose.Dialect, fs.FS)
	// Name is that of the database, in names of files.
	Name() string
	// SchemaOf lists what the schema has that concerns the tables.
	SchemaOf(ctx context.Context, in Statements, tables []string) ([]SchemaObject, error)
	// LockMigrations keeps other processes from migrating until unlock.
	LockMigrations(ctx context.Context, db Pool) (unlock func() error, err error)
	// Tables counts the tables of the database, and those among them that have
	// the given name.
	Tables(ctx context.Context, db Pool, name string) (all, named int, err error)

	// RunnerOn gives statements the place to run on.
	RunnerOn(on stmtcache.Place) Runner
	// Outdated reports whether a connection has to be replaced, because new ones would have
	// other settings.
	Outdated(conn *sql.Conn) bool
	// Shared reports whether other processes may work on the database.
	Shared() bool
	// Writable answers nil if the database takes writes.
	Writable(ctx context.Context, db *DB) error
	// Placeholders lists the parameters of a statement that inserts rows.
	Placeholders(rows, columns int) string
	// StatementContext is the context for the statements of a transaction that
	// must not be interrupted, or of one that is over in no time.
	StatementContext(ctx context.Context) context.Context
	// Begin starts a write transaction.
	Begin() string
	// InPlace refuses a commit that would not be found again.
	InPlace() error
	// Serialise makes the transaction wait until no other process has one, and names
	// what the database is now, where that can become another one. It answers
	// ErrLockHeld where it has waited long enough to look who has the lock (Evict).
	Serialise(ctx context.Context, in Statements) (incarnation string, err error)
	// Evict ends transactions of processes that sleep in them while others wait.
	Evict(ctx context.Context, db *DB)
	// Announce tells other processes, on commit, that there are changes.
	Announce(ctx context.Context, in Statements) error
	// Follow starts to follow the changes of other processes, where there can be any.
	Follow(ctx context.Context, db *DB) (*replication.Follower, error)

	// SetKeyMACs writes the MACs of keys.
	SetKeyMACs(ctx context.Context, in Statements, ids, macs [][]byte) error
	// SetKeyWraps writes how keys are wrapped, and their MACs.
	SetKeyWraps(ctx context.Context, in Statements, ids, wrapped, macs [][]byte) error
	// ClaimRewrap claims that this process alone wraps keys anew, until release. It
	// answers nil where another one does.
	ClaimRewrap(ctx context.Context, db *DB) (release func(), err error)
	// Erase makes what was overwritten vanish from the files. It answers false where
	// somebody reads what was.
	Erase(ctx context.Context, db *DB) (bool, error)
	// Classify says what a driver's error means.
	Classify(err error) ErrorClass
	// Full reports whether it means that the database's volume is.
	Full(err error) bool
	// LostToAnother reports whether the database aborted a transaction in favor of another
	// one, so that it may succeed if it runs again.
	LostToAnother(err error) bool
}

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

// Dialect has the operations that differ between SQLite and PostgreSQL.
type Dialect interface {
	// Open opens the pools. Before that, it does all checks that need no pool. It must
	// not change a database that it rejects.
	Open(ctx context.Context) (Pools, error)
	OpenReadOnly(ctx context.Context) (Pools, error)

	// VersionTable returns the table in which goose records the applied migrations.
	VersionTable() string
	// Migrations returns the migration files and the goose dialect that applies them.
	Migrations() (goose.Dialect, fs.FS)
	// Name returns the name of the database, as used in file names.
	Name() string
	// SchemaOf lists the schema objects that concern the tables.
	SchemaOf(ctx context.Context, in Statements, tables []string) ([]SchemaObject, error)
	// LockMigrations prevents migrations by other processes until the caller calls unlock.
	LockMigrations(ctx context.Context, db Pool) (unlock func() error, err error)
	// Tables returns the number of tables in the database, and how many of them have the
	// given name.
	Tables(ctx context.Context, db Pool, name string) (all, named int, err error)

	// RunnerOn returns a runner for a pool or connection.
	RunnerOn(on stmtcache.Preparer) Runner
	// Outdated reports whether a connection has to be replaced, because new connections
	// have other settings.
	Outdated(conn *sql.Conn) bool
	// Shared reports whether other processes may work on the database.
	Shared() bool
	// Writable returns nil if the database accepts writes.
	Writable(ctx context.Context, db *DB) error
	// Placeholders returns the placeholders after VALUES for an INSERT of rows.
	Placeholders(rows, columns int) string
	// StatementContext returns the context for the statements of a transaction that is
	// short or must not be interrupted. It may drop the cancellation of ctx.
	StatementContext(ctx context.Context) context.Context
	// Begin returns the statement that starts a write transaction.
	Begin() string
	// InPlace returns an error if the database files were removed or replaced, so that a commit
	// would be lost.
	InPlace() error
	// Serialise waits until no other process has a write transaction, and then prevents such transactions until the
	// current transaction ends. It returns the incarnation of the database (replication.State), or "" for SQLite. After
	// a bounded wait it returns ErrLockHeld; the caller then calls Evict.
	Serialise(ctx context.Context, in Statements) (incarnation string, err error)
	// Evict ends transactions that are idle and hold a lock for which other processes wait.
	Evict(ctx context.Context, db *DB)
	// Announce notifies other processes of changes when the transaction commits.
	Announce(ctx context.Context, in Statements) error
	// Follow starts to read the changes of other processes. It returns nil if no other
	// process can write.
	Follow(ctx context.Context, db *DB) (*replication.Follower, error)

	// SetKeyMACs writes the row MACs of keys.
	SetKeyMACs(ctx context.Context, in Statements, ids, macs [][]byte) error
	// SetKeyWraps writes the encrypted bytes of keys, and the MACs of their rows.
	SetKeyWraps(ctx context.Context, in Statements, ids, wrapped, macs [][]byte) error
	// ClaimRewrap gives this process the exclusive right to rewrap keys, until release. It
	// returns nil if another process has that right.
	ClaimRewrap(ctx context.Context, db *DB) (release func(), err error)
	// Erase removes overwritten data from the files. It returns false if an open read
	// prevents that.
	Erase(ctx context.Context, db *DB) (bool, error)
	// Classify returns the class of an error from the driver.
	Classify(err error) ErrorClass
	// Full reports whether the error means that the volume of the database is full.
	Full(err error) bool
	// LostToAnother reports whether the database aborted a transaction in favor of another one. The aborted transaction
	// may succeed if it runs again.
	LostToAnother(err error) bool
}

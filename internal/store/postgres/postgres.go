package postgres

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/stmtcache"
)

// Connections of one process. Three are for writes: Transact, the audit chain, and a migration or the rewrapping of
// keys. One is for reads that must not wait for other reads (DB.FreshReads): they check whether this process is
// current. One waits for notifications or, behind a pooler, holds the claim of the audit chain. All other connections
// are for reads.
const (
	postgresWriters = 3
	postgresWaiters = 1
	postgresLookers = 1
	// MinConnections is the minimum of Database.Connections. A process cannot work with fewer connections.
	MinConnections = postgresWriters + postgresWaiters + postgresLookers + 2
	// DefaultConnections is the default number of connections of a process.
	DefaultConnections = 20
)

// Keys of the advisory locks. Each key has two numbers. The first number distinguishes it from the locks of other
// programs in the same database.
const (
	LockClass     = 1263751760 // "KSOP"
	lockMigration = -1
	lockUpdate    = -2 // numbers from 1 are for audit chains
	lockRewrap    = -3
	LockCopy      = -4
)

// changeChannel is the channel on which a commit announces its changes.
const changeChannel = "keyserver_changes"

// Database keeps the state in a PostgreSQL database that replicas may share.
type Database struct {
	URL         string
	Connections int // maximum number of connections of one process
	Log         *slog.Logger

	// Set by probe.
	Pooled      bool   // there is a pooler: each transaction may use another session
	incarnation string // SQL expression for the incarnation of the database (see incarnations)

	hosts    hosts
	conns    connTracker
	sessions sessions

	// Restoring means that a restore is not complete yet, so the version table has another name (sqldb.RestoringTable).
	Restoring bool
}

// VersionTable implements sqldb.Dialect.
func (d *Database) VersionTable() string {
	if d.Restoring {
		return sqldb.RestoringTable
	}
	return sqldb.VersionTable
}

// Migrations implements sqldb.Dialect.
func (d *Database) Migrations() (goose.Dialect, fs.FS) {
	return goose.DialectPostgres, sqldb.MigrationDir("postgres")
}

// LockMigrations implements sqldb.Dialect. If replicas start at the same time, one replica migrates. The other replicas
// wait here and then have nothing to migrate.
func (d *Database) LockMigrations(ctx context.Context, db sqldb.Pool) (func() error, error) {
	c, err := d.Claim(ctx, db, lockMigration, true)
	if err != nil {
		return nil, err
	}
	return func() error { c.Release(); return nil }, nil
}

// Tables implements sqldb.Dialect.
func (d *Database) Tables(ctx context.Context, db sqldb.Pool, name string) (all, named int, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE tablename = $1)
		FROM pg_catalog.pg_tables WHERE schemaname = current_schema()`, name).Scan(&all, &named)
	return all, named, err
}

// RunnerOn returns the pool or connection itself, because the driver caches prepared statements. The driver prepares a
// statement again after a migration has changed a table.
func (d *Database) RunnerOn(on stmtcache.Preparer) sqldb.Runner { return on }

// Shared implements sqldb.Dialect.
func (d *Database) Shared() bool { return true }

// Writable implements sqldb.Dialect. A standby refuses writes. A server may also be configured to refuse writes.
func (d *Database) Writable(ctx context.Context, db *sqldb.DB) error {
	var refuses bool
	err := db.FreshReads().Row(ctx, `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean`, nil, &refuses)
	if err == nil && refuses {
		return errors.New("the database is read-only")
	}
	return err
}

// Placeholders implements sqldb.Dialect.
func (d *Database) Placeholders(rows, columns int) string {
	var b strings.Builder
	for n := range rows * columns {
		switch {
		case n == 0:
			b.WriteString("(")
		case n%columns == 0:
			b.WriteString("),(")
		default:
			b.WriteString(",")
		}
		b.WriteString("$" + strconv.Itoa(n+1))
	}
	return b.String() + ")"
}

// InPlace implements sqldb.Dialect.
func (d *Database) InPlace() error { return nil }

// Begin implements sqldb.Dialect.
func (d *Database) Begin() string { return strings.Join(d.Beginning(), "; ") }

// Beginning returns the statements that begin a transaction. Behind a pooler, they include a setting,
// because the session of the transaction may not have the settings of this process.
func (d *Database) Beginning() []string {
	if d.Pooled {
		return []string{"BEGIN", "SET LOCAL " + idleSetting + " = " + idleBound}
	}
	return []string{"BEGIN"}
}

// Serialise waits at most LockPatience, so that its caller can then evict an idle process that holds the lock.
// PostgreSQL evaluates columns in order, so it reads the incarnation in the second column after it has the lock.
func (d *Database) Serialise(ctx context.Context, in sqldb.Statements) (incarnation string, err error) {
	var set string
	rows, err := in.Run.QueryContext(ctx, `SELECT set_config('lock_timeout', $1, true) || pg_advisory_xact_lock($2, $3)::text || set_config('lock_timeout', '0', true), `+d.incarnation,
		LockPatience, LockClass, lockUpdate)
	if err != nil {
		return "", d.waited(ctx, in, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&set, &incarnation); err != nil {
			return "", in.Fail(ctx, err)
		}
	}
	return incarnation, d.waited(ctx, in, rows.Err())
}

// waited translates the error of a statement. It returns ErrLockHeld if the statement waited too long for a lock.
func (d *Database) waited(ctx context.Context, in sqldb.Statements, err error) error {
	if LockTimedOut(err) {
		return sqldb.ErrLockHeld
	}
	return in.Fail(ctx, err)
}

// Announce implements sqldb.Dialect.
func (d *Database) Announce(ctx context.Context, in sqldb.Statements) error {
	_, err := in.Exec(ctx, `SELECT pg_notify($1, '')`, changeChannel)
	return err
}

// StatementContext returns ctx with its cancellation, because a server may not respond to a statement.
func (d *Database) StatementContext(ctx context.Context) context.Context { return ctx }

// SetKeyMACs writes all MACs in one round trip to the server.
func (d *Database) SetKeyMACs(ctx context.Context, in sqldb.Statements, ids, macs [][]byte) error {
	_, err := in.Exec(ctx, `UPDATE stored_keys k SET mac = v.mac FROM unnest($1::bytea[], $2::bytea[]) AS v(id, mac) WHERE k.id = v.id`, ids, macs)
	return err
}

// SetKeyWraps writes all keys in one round trip to the server.
func (d *Database) SetKeyWraps(ctx context.Context, in sqldb.Statements, ids, wrapped, macs [][]byte) error {
	_, err := in.Exec(ctx, `UPDATE stored_keys k SET wrapped = v.wrapped, mac = v.mac
		FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS v(id, wrapped, mac) WHERE k.id = v.id`, ids, wrapped, macs)
	return err
}

// ClaimRewrap takes a lock that lasts until its connection ends. If the connection is lost, two processes may rewrap
// keys at the same time. This does no harm, because Transact runs their batches one after the other.
func (d *Database) ClaimRewrap(ctx context.Context, db *sqldb.DB) (func(), error) {
	c, err := d.Claim(ctx, db.Pools().Write, lockRewrap, false)
	if err != nil || c == nil {
		return nil, sqldb.Translate(d, err)
	}
	return c.Release, nil
}

// Erase does nothing: the server runs VACUUM by itself, which removes old versions of rows. This
// program does not manage the server's log and backups (docs/guides/replicate.md).
func (d *Database) Erase(context.Context, *sqldb.DB) (bool, error) { return true, nil }

// Codes of PostgreSQL's errors
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	pgUniqueViolation     = "23505"
	pgForeignKeyViolation = "23503"
	pgUndefinedObject     = "42704"
	pgUndefinedTable      = "42P01"
	pgCanceled            = "57014"
	DivisionByZero        = "22012"
	pgReadOnly            = "25006"
	pgIdleInTransaction   = "25P03"
	pgLockNotAvailable    = "55P03"
	pgSerialization       = "40001"
	pgDeadlock            = "40P01"
	pgDiskFull            = "53100"
)

// pgUnavailable are the classes of errors after which a retry of the statement may succeed: connection
// exceptions, transaction rollback, insufficient resources, operator intervention, and system errors.
var pgUnavailable = map[string]bool{"08": true, "40": true, "53": true, "57": true, "58": true}

// Full implements sqldb.Dialect.
func (d *Database) Full(err error) bool { return CodeOf(err) == pgDiskFull }

// CodeOf returns the code of an error that PostgreSQL reported, or "" for any other error.
func CodeOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// LostToAnother reports whether PostgreSQL aborted a transaction in favor of another one. The
// same transaction may succeed if it runs again.
func (d *Database) LostToAnother(err error) bool {
	switch CodeOf(err) {
	case pgDeadlock, pgSerialization, pgLockNotAvailable:
		return true
	}
	return false
}

// Classify implements sqldb.Dialect.
func (d *Database) Classify(err error) sqldb.ErrorClass {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if errors.Is(err, sql.ErrNoRows) {
			return sqldb.ClassOther
		}
		return sqldb.ClassUnavailable // no error from the server: the request or the response was lost
	}
	if refusals[e.Code] {
		d.sessions.refused.Store(true)
	}
	switch {
	case e.Code == pgUniqueViolation:
		return sqldb.ClassDuplicate
	case e.Code == pgForeignKeyViolation:
		return sqldb.ClassReference
	case len(e.Code) == 5 && pgUnavailable[e.Code[:2]], e.Code == pgReadOnly, e.Code == pgIdleInTransaction, e.Code == pgLockNotAvailable:
		return sqldb.ClassUnavailable
	default:
		return sqldb.ClassOther
	}
}

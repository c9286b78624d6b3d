package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/stmtcache"
)

// Connections of one process. Those that do not read are one each for Update, the
// audit chain and a migration or the wrapping of keys, one that looks whether this
// process is current, and one that listens or, behind a pooler, holds the claim of the
// chain.
const (
	postgresWriters = 3
	postgresWaiters = 1
	postgresLookers = 1
	// MinConnections are as few as a process can work with.
	MinConnections = postgresWriters + postgresWaiters + postgresLookers + 2
	// DefaultConnections are those of a process that nobody asked for others.
	DefaultConnections = 20
)

// Keys of the advisory locks. All are of the two-number form, whose first
// number keeps them apart from another program's in the same database.
const (
	lockClass     = 1263751760 // "KSOP"
	lockMigration = -1
	lockUpdate    = -2 // numbers from 1 are audit chains
	lockRewrap    = -3
	lockCopy      = -4
)

// changeChannel is where a commit announces its changes.
const changeChannel = "keyserver_changes"

// postgres keeps the state in a PostgreSQL database that replicas may share.
type postgres struct {
	url         string
	connections int // that one process may have
	log         *slog.Logger

	// What reach finds out.
	pooled      bool   // a pooler stands between: no session outlives a transaction
	incarnation string // the expression that names what runs there (incarnations)

	hosts    hosts
	lines    lines
	sessions sessions

	// restore says that what is made has not got the name of a whole database yet.
	restore bool
}

func (d *postgres) versionTable() string {
	if d.restore {
		return restoringTable
	}
	return versionTable
}

func (d *postgres) migrations() (goose.Dialect, fs.FS) {
	return goose.DialectPostgres, migrationDir("postgres")
}

// lockMigrations lets replicas start at the same time: all but one wait here
// and then find nothing to do.
func (d *postgres) lockMigrations(ctx context.Context, db pool) (func() error, error) {
	c, err := d.claim(ctx, db, lockMigration, true)
	if err != nil {
		return nil, err
	}
	return func() error { c.release(); return nil }, nil
}

func (d *postgres) tables(ctx context.Context, db pool, name string) (all, named int, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE tablename = $1)
		FROM pg_catalog.pg_tables WHERE schemaname = current_schema()`, name).Scan(&all, &named)
	return all, named, err
}

// runnerOn adds nothing: the driver keeps statements prepared, and prepares
// them anew when a migration changed a table under them.
func (d *postgres) runnerOn(on stmtcache.Place) runner { return on }

func (d *postgres) shared() bool { return true }

// writable: a standby, and a server that was set so, refuse writes.
func (d *postgres) writable(ctx context.Context, db *DB) error {
	var refuses bool
	err := db.Looking().row(ctx, `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean`, nil, &refuses)
	if err == nil && refuses {
		return errors.New("the database is read-only")
	}
	return err
}

func (d *postgres) placeholders(rows, columns int) string {
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

func (d *postgres) inPlace() error { return nil }

func (d *postgres) begin() string { return strings.Join(d.beginning(), "; ") }

// beginning is what begins a transaction. A pooler may give each another session,
// whose settings are not ours.
func (d *postgres) beginning() []string {
	if d.pooled {
		return []string{"BEGIN", "SET LOCAL " + idleSetting + " = " + idleBound}
	}
	return []string{"BEGIN"}
}

// serialise waits for a bounded time, so that who sleeps with the lock can be found.
// The columns are evaluated in their order.
func (d *postgres) serialise(ctx context.Context, in statements) (incarnation string, err error) {
	var set string
	rows, err := in.run.QueryContext(ctx, `SELECT set_config('lock_timeout', $1, true) || pg_advisory_xact_lock($2, $3)::text || set_config('lock_timeout', '0', true), `+d.incarnation,
		lockPatience, lockClass, lockUpdate)
	if err != nil {
		return "", d.waited(ctx, in, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&set, &incarnation); err != nil {
			return "", in.fail(ctx, err)
		}
	}
	return incarnation, d.waited(ctx, in, rows.Err())
}

// waited translates the error of a statement that may have waited in vain.
func (d *postgres) waited(ctx context.Context, in statements, err error) error {
	if lockTimedOut(err) {
		return errLockHeld
	}
	return in.fail(ctx, err)
}

func (d *postgres) announce(ctx context.Context, in statements) error {
	_, err := in.exec(ctx, `SELECT pg_notify($1, '')`, changeChannel)
	return err
}

// statementContext is the caller's: a server may not answer.
func (d *postgres) statementContext(ctx context.Context) context.Context { return ctx }

// setKeyMACs takes one way to the server and back for all of them.
func (d *postgres) setKeyMACs(ctx context.Context, in statements, ids, macs [][]byte) error {
	_, err := in.exec(ctx, `UPDATE stored_keys k SET mac = v.mac FROM unnest($1::bytea[], $2::bytea[]) AS v(id, mac) WHERE k.id = v.id`, ids, macs)
	return err
}

// setKeyWraps takes one way to the server and back for all of them.
func (d *postgres) setKeyWraps(ctx context.Context, in statements, ids, wrapped, macs [][]byte) error {
	_, err := in.exec(ctx, `UPDATE stored_keys k SET wrapped = v.wrapped, mac = v.mac
		FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS v(id, wrapped, mac) WHERE k.id = v.id`, ids, wrapped, macs)
	return err
}

// claimRewrap claims by a lock that lives as long as its connection. Two that work at
// the same time, after one was lost, do no harm: each batch is serialised.
func (d *postgres) claimRewrap(ctx context.Context, db *DB) (func(), error) {
	c, err := d.claim(ctx, db.Pools().write, lockRewrap, false)
	if err != nil || c == nil {
		return nil, translate(d, err)
	}
	return c.release, nil
}

// erase has nothing to do: the versions of rows go with VACUUM, which the server
// runs by itself, and its log and its backups are not ours (docs/operations.md).
func (d *postgres) erase(context.Context, *DB) (bool, error) { return true, nil }

// Classes and codes of PostgreSQL's errors
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	pgUniqueViolation     = "23505"
	pgForeignKeyViolation = "23503"
	pgUndefinedObject     = "42704"
	pgUndefinedTable      = "42P01"
	pgCanceled            = "57014"
	pgDivisionByZero      = "22012"
	pgReadOnly            = "25006"
	pgIdleInTransaction   = "25P03"
	pgLockNotAvailable    = "55P03"
	pgSerialization       = "40001"
	pgDeadlock            = "40P01"
	pgDiskFull            = "53100"
)

// pgUnavailable are the classes after which the same statement may succeed:
// connection, transaction rollback, resources, and an operator's intervention.
var pgUnavailable = map[string]bool{"08": true, "40": true, "53": true, "57": true, "58": true}

func (d *postgres) full(err error) bool { return codeOfServer(err) == pgDiskFull }

// codeOfServer returns the code of an error that PostgreSQL reported, or "" for any other error.
func codeOfServer(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// lostToAnother reports whether PostgreSQL aborted a transaction in favor of another one. The
// same transaction may succeed if it runs again.
func (d *postgres) lostToAnother(err error) bool {
	switch codeOfServer(err) {
	case pgDeadlock, pgSerialization, pgLockNotAvailable:
		return true
	}
	return false
}

func (d *postgres) classify(err error) errorClass {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if errors.Is(err, sql.ErrNoRows) {
			return classOther
		}
		return classUnavailable // not from the server, so it did not get there or back
	}
	if refusals[e.Code] {
		d.sessions.refused.Store(true)
	}
	switch {
	case e.Code == pgUniqueViolation:
		return classDuplicate
	case e.Code == pgForeignKeyViolation:
		return classReference
	case len(e.Code) == 5 && pgUnavailable[e.Code[:2]], e.Code == pgReadOnly, e.Code == pgIdleInTransaction, e.Code == pgLockNotAvailable:
		return classUnavailable
	default:
		return classOther
	}
}

package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore/follow"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore/prepared"
)

// Connections of one process: readers, and for writing one each for Update,
// the audit chain and a migration.
const (
	postgresReaders = 16
	postgresWriters = 3
)

// connectTimeout bounds a connection attempt where the URL does not.
const connectTimeout = 5 * time.Second

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
	url string
	log *slog.Logger
	// restore says that what is made has not got the name of a whole database yet.
	restore bool
}

// config reads the URL. The parser's own error may repeat the URL, and with it
// a password.
func (d *postgres) config() (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(d.url)
	if err != nil || !strings.HasPrefix(d.url, "postgres") {
		return nil, refuse(ErrUnusable, "the database URL cannot be read: want postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	for name, value := range map[string]string{
		"application_name":              "keyserver-operator",
		"default_transaction_isolation": "read committed", // Update serialises by a lock
		// Every statement here reads a bounded number of rows by an index. For
		// a window of some hundred principals the planner would rather read
		// the whole of their roles and groups, which costs more the more
		// principals there are (test/bench/scale).
		"enable_hashjoin":  "off",
		"enable_mergejoin": "off",
		// A replica that is gone or stopped must not keep its locks for long.
		"tcp_keepalives_idle":                 "10",
		"tcp_keepalives_interval":             "5",
		"tcp_keepalives_count":                "3",
		"idle_in_transaction_session_timeout": "30000",
	} {
		if cfg.RuntimeParams[name] == "" {
			cfg.RuntimeParams[name] = value
		}
	}
	if d.restore { // the rows come from elsewhere, at the pace of that
		cfg.RuntimeParams["idle_in_transaction_session_timeout"], cfg.RuntimeParams["statement_timeout"] = "0", "0"
	}
	return cfg, nil
}

func (d *postgres) open(ctx context.Context) (pools, error) {
	cfg, err := d.config()
	if err != nil {
		return pools{}, err
	}
	p := pools{write: d.pool(cfg, postgresWriters), read: d.pool(cfg, postgresReaders)}
	if err := d.reach(ctx, p.read); err != nil {
		return pools{}, errors.Join(err, p.close())
	}
	return p, nil
}

func (d *postgres) openReadOnly(ctx context.Context) (pools, error) {
	cfg, err := d.config()
	if err != nil {
		return pools{}, err
	}
	cfg.RuntimeParams["default_transaction_read_only"] = "on"
	p := pools{read: d.pool(cfg, 2)} // one more, for the data keys while rows are read
	if err := d.reach(ctx, p.read); err != nil {
		return pools{}, errors.Join(err, p.close())
	}
	return p, nil
}

func (d *postgres) pool(cfg *pgx.ConnConfig, size int) pool {
	db := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		// A commit has to be on disk before it is acknowledged. Stricter
		// settings, which wait for standbys too, stay.
		_, err := conn.Exec(ctx, `SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`)
		return err
	}))
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

// reach connects once, so that a wrong URL is one sentence at start. The
// driver's errors name host, user and database, never the password.
func (d *postgres) reach(ctx context.Context, db pool) error {
	var syncs string
	if err := db.QueryRowContext(ctx, `SELECT current_setting('fsync')`).Scan(&syncs); err != nil {
		return refuse(ErrUnusable, "the database cannot be reached: %s", err)
	}
	if syncs != "on" {
		d.log.Warn("PostgreSQL runs with fsync off: acknowledged writes and audit rows may be lost when its machine stops")
	}
	return nil
}

func (d *postgres) migrations() (goose.Dialect, fs.FS) {
	return goose.DialectPostgres, migrationDir("postgres")
}

// lockMigrations lets replicas start at the same time: all but one wait here
// and then find nothing to do.
func (d *postgres) lockMigrations(ctx context.Context, db pool) (func() error, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1, $2)`, lockClass, lockMigration); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func() error {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, err := conn.ExecContext(end, `SELECT pg_advisory_unlock($1, $2)`, lockClass, lockMigration)
		return errors.Join(err, conn.Close())
	}, nil
}

func (d *postgres) tables(ctx context.Context, db pool, name string) (all, named int, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE tablename = $1)
		FROM pg_catalog.pg_tables WHERE schemaname = current_schema()`, name).Scan(&all, &named)
	return all, named, err
}

// runnerOn adds nothing: the driver keeps statements prepared, and prepares
// them anew when a migration changed a table under them.
func (d *postgres) runnerOn(on prepared.Place) runner { return on }

func (d *postgres) shared() bool { return true }

// alone runs on any connection: the statement is its own transaction, and
// waits for none of the others.
func (d *postgres) alone(ctx context.Context, s *Store, text string, args ...any) (int64, error) {
	return s.exec(ctx, text, args...)
}

// writable: a standby, and a server that was set so, refuse writes.
func (d *postgres) writable(ctx context.Context, s *Store) error {
	var refuses bool
	err := s.row(ctx, `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean`, nil, &refuses)
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

func (d *postgres) begin() string { return "BEGIN" }

func (d *postgres) serialise(ctx context.Context, in statements) error {
	_, err := in.exec(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, lockClass, lockUpdate)
	return err
}

func (d *postgres) announce(ctx context.Context, in statements) error {
	_, err := in.exec(ctx, `SELECT pg_notify($1, '')`, changeChannel)
	return err
}

func (d *postgres) follow(ctx context.Context, s *Store) (*follow.Follower, error) {
	cfg, err := d.config()
	if err != nil {
		return nil, err
	}
	return follow.Start(ctx, s.source(func(ctx context.Context) (follow.Listener, error) {
		conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
		if err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, "LISTEN "+changeChannel); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
		return postgresListener{conn}, nil
	}))
}

// postgresListener waits on a connection of its own.
type postgresListener struct{ conn *pgx.Conn }

// Wait returns at a notification, and also when nothing comes for the given time.
func (l postgresListener) Wait(ctx context.Context, atMost time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	_, err := l.conn.WaitForNotification(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil && !l.conn.IsClosed() {
		return nil // only the time is over
	}
	return err
}

// Close hangs up.
func (l postgresListener) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx)
}

// maxLiveChains bounds the search for a free chain. It is far over the number
// of replicas that a database would stand.
const maxLiveChains = 1024

// statementContext is the caller's: a server may not answer.
func (d *postgres) statementContext(ctx context.Context) context.Context { return ctx }

// claimChain claims by a lock that lives as long as its connection, and lets
// the chain be written on that connection only: whoever lost the lock has also
// lost the means to write.
func (d *postgres) claimChain(ctx context.Context, s *Store) (audit.Chain, error) {
	session, err := openSession(ctx, d, s.pools.write)
	if err != nil {
		return nil, err
	}
	held := statements{run: session.run, dialect: d}
	for chain := int64(1); chain <= maxLiveChains; chain++ {
		var locked bool
		if err := held.row(ctx, `SELECT pg_try_advisory_lock($1, $2)`, []any{lockClass, chain}, &locked); err != nil {
			session.drop()
			return nil, err
		}
		if !locked {
			continue
		}
		c := &sharedChain{chain: chain, store: s, session: session, uses: map[keyserver.ID]int64{}}
		if err := c.create(ctx); err != nil {
			session.drop()
			return nil, err
		}
		return c, nil
	}
	session.drop()
	return nil, fmt.Errorf("each of the %d audit chains has a live writer", maxLiveChains)
}

// A row is durable in its table.
func (d *postgres) recoverTrail(context.Context, *Store) error { return nil }
func (d *postgres) unfilled(ctx context.Context, s *Store) (audit.Snapshot, []keyserver.AuditEntry, error) {
	snapshot, err := s.reads.AuditSnapshot(ctx)
	return snapshot, nil, err
}

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
func (d *postgres) claimRewrap(ctx context.Context, s *Store) (func(), error) {
	session, err := openSession(ctx, d, s.pools.write)
	if err != nil {
		return nil, err
	}
	var locked bool
	err = statements{run: session.run, dialect: d}.row(ctx, `SELECT pg_try_advisory_lock($1, $2)`, []any{lockClass, lockRewrap}, &locked)
	if err != nil || !locked {
		session.drop()
		return nil, err
	}
	return session.drop, nil // and with it the lock
}

// erase has nothing to do: the versions of rows go with VACUUM, which the server
// runs by itself, and its log and its backups are not ours (docs/operations.md).
func (d *postgres) erase(context.Context, *Store) (bool, error) { return true, nil }

func (d *postgres) chainsHeld(ctx context.Context, in statements) (n int, err error) {
	err = in.row(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid::bigint = $1 AND objid::bigint BETWEEN 1 AND $2`, []any{lockClass, maxLiveChains}, &n)
	return n, err
}

// Classes and codes of PostgreSQL's errors
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	pgUniqueViolation     = "23505"
	pgForeignKeyViolation = "23503"
	pgDivisionByZero      = "22012"
)

// pgUnavailable are the classes after which the same statement may succeed:
// connection, transaction rollback, resources, and an operator's intervention.
var pgUnavailable = map[string]bool{"08": true, "40": true, "53": true, "57": true, "58": true}

func (d *postgres) classify(err error) errorClass {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if errors.Is(err, sql.ErrNoRows) {
			return classOther
		}
		return classUnavailable // not from the server, so it did not get there or back
	}
	switch {
	case e.Code == pgUniqueViolation:
		return classDuplicate
	case e.Code == pgForeignKeyViolation:
		return classReference
	case len(e.Code) == 5 && pgUnavailable[e.Code[:2]], e.Code == "25P03", e.Code == "55P03": // idle in transaction, or waiting for a lock, for too long
		return classUnavailable
	default:
		return classOther
	}
}

package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// connectTimeout bounds a connection attempt to one host if the URL sets no bound.
const connectTimeout = 5 * time.Second

// How long a session that is idle in a transaction may hold locks. A process that was
// stopped in the middle of a transaction, or is cut off from the database, then loses the
// transaction.
const (
	idleSetting = "idle_in_transaction_session_timeout"
	idleBound   = "1500" // milliseconds
	// LockPatience is the time after which a process that waits for a lock of all replicas
	// checks which process has it.
	LockPatience = "1000" // milliseconds
)

// postgresSettings are the settings of each session. They are set after connecting,
// because poolers reject most of them when a connection is opened.
var postgresSettings = []struct{ name, value string }{
	{"default_transaction_isolation", "read committed"}, // Transact serialises by a lock
	// Every statement here reads a bounded number of rows by an index. For a window of
	// some hundred principals, the planner would instead read all of their roles and
	// groups, which costs more the more principals there are (test/bench/scale).
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	// A replica that is gone or stopped must not keep its locks for long.
	{"tcp_keepalives_idle", "10"},
	{"tcp_keepalives_interval", "5"},
	{"tcp_keepalives_count", "3"},
	{"tcp_user_timeout", "10000"},
	{idleSetting, idleBound},
}

// Config parses the URL. It hides the parser's error, which may repeat the URL and with it
// a password.
func (d *Database) Config() (*pgx.ConnConfig, error) {
	if err := CheckURL(d.URL); err != nil {
		return nil, sqldb.Refuse(sqldb.ErrUnusable, "%s", err)
	}
	cfg, err := pgx.ParseConfig(d.URL)
	if err != nil {
		return nil, sqldb.Refuse(sqldb.ErrUnusable, "--database-url: not a valid URL; %s", wantURL)
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "keyserver-operator"
	}
	cfg.DialFunc = d.conns.through(cfg.DialFunc)
	return cfg, nil
}

// Open implements sqldb.Dialect.
func (d *Database) Open(ctx context.Context) (sqldb.Pools, error) {
	cfg, err := d.Config()
	if err != nil {
		return sqldb.Pools{}, err
	}
	if cfg.ValidateConnect == nil {
		// Also with one host: after a failover it may be a standby.
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	if err := d.reach(ctx, cfg); err != nil {
		return sqldb.Pools{}, err
	}
	writers := postgresWriters
	if d.Pooled {
		writers += postgresWaiters
	}
	return sqldb.Pools{
		Write: d.Pool(cfg, writers, ""),
		Read:  d.Pool(cfg, d.readers(), ""),
		Look:  d.Pool(cfg, postgresLookers, ""),
	}, nil
}

// OpenReadOnly implements sqldb.Dialect.
func (d *Database) OpenReadOnly(ctx context.Context) (sqldb.Pools, error) {
	cfg, err := d.Config()
	if err != nil {
		return sqldb.Pools{}, err
	}
	if err := d.reach(ctx, cfg); err != nil {
		return sqldb.Pools{}, err
	}
	setting := "SET default_transaction_read_only = on"
	if d.Pooled {
		setting = "" // the pooler would keep the setting for transactions of other clients
	}
	return sqldb.Pools{Read: d.Pool(cfg, 2, setting)}, nil // one more, for the data keys while rows are read
}

func (d *Database) readers() int {
	return d.Connections - postgresWriters - postgresWaiters - postgresLookers
}

// Pool returns a pool of size connections. Behind a pooler, statements are described and
// not prepared, and nothing is set: the next transaction may be in another session.
func (d *Database) Pool(cfg *pgx.ConnConfig, size int, setting string) sqldb.Pool {
	cfg = cfg.Copy()
	if d.Pooled && cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	settings := d.settings(cfg, setting)
	db := sql.OpenDB(d.hosts.connector(cfg, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, settings)
		return err
	}), stdlib.OptionResetSession(func(_ context.Context, conn *pgx.Conn) error {
		if d.conns.outdated(conn.PgConn().Conn()) {
			return driver.ErrBadConn // the pool opens another one
		}
		return nil
	})))
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

// settings returns the statements that begin a session. They do not override the URL.
func (d *Database) settings(cfg *pgx.ConnConfig, more string) string {
	if d.Pooled {
		return more
	}
	// A commit must be on disk before it is acknowledged. Stricter settings, which also
	// wait for standbys, are kept.
	all := []string{`SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`}
	for _, s := range postgresSettings {
		if cfg.RuntimeParams[s.name] == "" {
			all = append(all, "SET "+s.name+" = '"+s.value+"'")
		}
	}
	if d.Restoring { // the rows come from elsewhere, possibly slowly
		all = append(all, "SET "+idleSetting+" = 0", "SET statement_timeout = 0")
	}
	return strings.Join(append(all, more), "; ")
}

// reach connects once, so that the start reports a wrong URL in one sentence. The driver's errors name host, user and
// database, never the password.
func (d *Database) reach(ctx context.Context, cfg *pgx.ConnConfig) error {
	conn, err := d.hosts.connect(ctx, cfg)
	switch {
	case errors.Is(err, pgconn.ErrStandbyConnection), errors.Is(err, pgconn.ErrReadOnlyConnection):
		return sqldb.Refuse(sqldb.ErrUnusable, "the database is a standby or read-only; name the primary, or all hosts: postgres://USER:PASSWORD@HOST1,HOST2/DATABASE?target_session_attrs=read-write")
	case CodeOf(err) == pgUndefinedObject:
		// The parameter's name is not repeated: it may be the part of a password after a
		// &.
		return sqldb.Refuse(sqldb.ErrUnusable, "--database-url: a parameter is unknown to the database; %s", wantURL)
	case err != nil:
		return sqldb.Refuse(sqldb.ErrUnusable, "the database cannot be reached: %s", sqldb.DriverText(err))
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it has responded
	var syncs, commits string
	var backend uint32
	err = conn.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'), pg_backend_pid()`, pgx.QueryExecModeExec).
		Scan(&syncs, &commits, &backend)
	if err != nil {
		return sqldb.Refuse(sqldb.ErrUnusable, "the database cannot be reached: %s", sqldb.DriverText(err))
	}
	if syncs != "on" {
		d.Log.Warn("PostgreSQL runs with fsync off: acknowledged writes and audit rows may be lost if its machine stops")
	}
	// A pooler sends its clients process ids that differ from those of the sessions.
	if d.Pooled = conn.PgConn().PID() != backend; d.Pooled && commits == "off" {
		return sqldb.Refuse(sqldb.ErrUnusable, "the database is behind a pooler and synchronous_commit is off, so acknowledged writes could be lost; run ALTER ROLE ... SET synchronous_commit = on")
	}
	if d.Pooled {
		for _, text := range []string{"BEGIN", "ROLLBACK"} {
			if _, err := conn.Exec(ctx, text); err != nil {
				return sqldb.Refuse(sqldb.ErrUnusable, "the pooler of the database does not support transactions; set its pool mode to transaction or session: %s", sqldb.DriverText(err))
			}
		}
	}
	d.incarnation = incarnationOf(ctx, conn)
	return nil
}

// incarnations are expressions for the incarnation of the database: the number of the cluster, the timeline, which
// changes at each promotion, and the start time. If the role may not use the first expression, the second is enough,
// because no two servers start in the same microsecond.
var incarnations = []string{
	`(SELECT system_identifier::text FROM pg_control_system()) || ' ' || ` + startedOn,
	startedOn,
}

const startedOn = `CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END
	|| ' ' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text`

func incarnationOf(ctx context.Context, conn *pgx.Conn) string {
	for _, expression := range incarnations {
		if _, err := conn.Exec(ctx, "SELECT "+expression); err == nil {
			return expression
		}
	}
	return "''"
}

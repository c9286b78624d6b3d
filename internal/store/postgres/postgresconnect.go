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

// connectTimeout is the time limit of a connection attempt to one host if the URL sets none.
const connectTimeout = 5 * time.Second

// How long a session that is idle in a transaction may hold locks. After that time, the
// transaction ends. This concerns a process that stopped in the middle of a transaction, or
// lost the connection to the database.
const (
	idleSetting = "idle_in_transaction_session_timeout"
	idleBound   = "1500" // milliseconds
	// LockPatience is how long a process waits for a lock of all replicas before it evicts an
	// idle process that holds the lock (Evict).
	LockPatience = "1000" // milliseconds
)

// postgresSettings are the settings of each session. They are set by statements, because
// poolers reject most of them as parameters of a new connection.
var postgresSettings = []struct{ name, value string }{
	{"default_transaction_isolation", "read committed"}, // Transact serialises by a lock
	// Every statement reads a bounded number of rows by an index. With hash or merge
	// joins, the planner would read all roles and groups for a page of some hundred
	// principals. That is slow if there are many principals (test/bench/scale).
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	// A replica that has lost its connection must not keep its locks for long.
	{"tcp_keepalives_idle", "10"},
	{"tcp_keepalives_interval", "5"},
	{"tcp_keepalives_count", "3"},
	{"tcp_user_timeout", "10000"},
	{idleSetting, idleBound},
}

// Config parses the URL. Its error does not include the parser's error, which may repeat the
// password in the URL.
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
		// This check is needed even for one host: after a failover, this host may be a standby.
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	if err := d.probe(ctx, cfg); err != nil {
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
	if err := d.probe(ctx, cfg); err != nil {
		return sqldb.Pools{}, err
	}
	setting := "SET default_transaction_read_only = on"
	if d.Pooled {
		setting = "" // the pooler would keep the setting for transactions of other clients
	}
	return sqldb.Pools{Read: d.Pool(cfg, 2, setting)}, nil // the second connection reads data keys during a query
}

func (d *Database) readers() int {
	return d.Connections - postgresWriters - postgresWaiters - postgresLookers
}

// Pool returns a pool of at most size connections. setting is a further statement that begins
// each session. Behind a pooler, statements are described and not prepared, and
// postgresSettings are not set: the next transaction may use another session.
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
			return driver.ErrBadConn // the pool opens another connection
		}
		return nil
	})))
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

// settings returns the statements that begin a session. They do not override settings in the URL.
func (d *Database) settings(cfg *pgx.ConnConfig, more string) string {
	if d.Pooled {
		return more
	}
	// A commit must be on disk before it is acknowledged. Other values of
	// synchronous_commit, such as those that wait for standbys, are kept.
	all := []string{`SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`}
	for _, s := range postgresSettings {
		if cfg.RuntimeParams[s.name] == "" {
			all = append(all, "SET "+s.name+" = '"+s.value+"'")
		}
	}
	if d.Restoring { // the rows may arrive slowly
		all = append(all, "SET "+idleSetting+" = 0", "SET statement_timeout = 0")
	}
	return strings.Join(append(all, more), "; ")
}

// probe connects once, so that a process with a wrong URL fails at its start with a clear error. It also detects a
// pooler. The driver's errors name host, user and database, never the password.
func (d *Database) probe(ctx context.Context, cfg *pgx.ConnConfig) error {
	conn, err := d.hosts.connect(ctx, cfg)
	switch {
	case errors.Is(err, pgconn.ErrStandbyConnection), errors.Is(err, pgconn.ErrReadOnlyConnection):
		return sqldb.Refuse(sqldb.ErrUnusable, "the database is a standby or read-only; name the primary, or all hosts: postgres://USER:PASSWORD@HOST1,HOST2/DATABASE?target_session_attrs=read-write")
	case CodeOf(err) == pgUndefinedObject:
		// The error omits the name of the parameter, because it may be the part of a
		// password after a "&".
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
	// A pooler reports another process id to its client than the one of the session.
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

// incarnations are SQL expressions for the incarnation of the database: the system identifier of the cluster, the
// timeline, which changes at each promotion, and the start time. The second expression lacks the system identifier. It
// is used if the role may not read the system identifier. It is sufficient, because no two servers start in the same
// microsecond.
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

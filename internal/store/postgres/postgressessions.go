package postgres

import (
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
)

// sessionSettings is an SQL expression for the settings with which a new session of this role
// begins in this database (ALTER ROLE, ALTER DATABASE). An existing session keeps its old settings
// until it ends.
const sessionSettings = `(SELECT coalesce(string_agg(concat_ws(' ', setdatabase, setrole, setconfig), ' ' ORDER BY setdatabase, setrole), '')
	FROM pg_db_role_setting WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
	AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user)))`

// refusesWrites is an SQL expression. It is true if the session refuses writes although the server is not a standby.
const refusesWrites = `NOT pg_is_in_recovery() AND current_setting('transaction_read_only')::boolean`

// refusals are the codes of errors that the settings of a session may cause: it is read-only, its statements have a
// short time limit, or its search path is wrong.
var refusals = map[string]bool{pgReadOnly: true, pgCanceled: true, pgUndefinedTable: true}

// renewAgain is the minimum time between two renewals after refused statements. If the database is
// read-only on purpose, new sessions refuse writes, too.
const renewAgain = time.Second

// sessions decides when the sessions of the pools are outdated. An outdated session is replaced
// before its next use, so that no statement is interrupted.
type sessions struct {
	refused atomic.Bool // a statement has failed with one of refusals since the last renewal

	mu       sync.Mutex
	known    bool // whether settings is known
	settings string
	renewed  time.Time
}

// renew marks all connections as outdated if the settings of new sessions have changed, or if a
// session refused a statement. It ignores settings if err is not nil.
func (d *Database) renew(settings string, err error, now time.Time) {
	d.sessions.mu.Lock()
	defer d.sessions.mu.Unlock()
	changed := false
	if err == nil {
		changed = d.sessions.known && d.sessions.settings != settings
		d.sessions.known, d.sessions.settings = true, settings
	}
	switch {
	case changed:
		d.Log.Info("the settings of database sessions have changed; older connections are replaced")
	case d.sessions.refused.Load() && now.Sub(d.sessions.renewed).Abs() >= renewAgain:
	default:
		return
	}
	d.sessions.refused.Store(false)
	d.sessions.renewed = now
	d.conns.epoch.Add(1)
}

// Outdated implements sqldb.Dialect.
func (d *Database) Outdated(conn *sql.Conn) (is bool) {
	err := conn.Raw(func(driver any) error {
		is = d.conns.outdated(driver.(*stdlib.Conn).Conn().PgConn().Conn()) //nolint:errcheck,forcetypeassert // no other driver is behind this dialect
		return nil
	})
	return is && err == nil
}

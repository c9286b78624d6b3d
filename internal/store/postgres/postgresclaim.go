package postgres

import (
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
)

// Claim is an advisory lock of the database. One process holds it until the process calls
// Release or loses the connection.
type Claim struct {
	Session *sqldb.Session
	pooled  bool
}

// Claim takes a lock. Without wait, it returns nil if another process has the lock. Behind a
// pooler, the lock belongs to a transaction that stays open, because only a transaction stays
// in one session.
func (d *Database) Claim(ctx context.Context, db sqldb.Pool, key int64, wait bool) (*Claim, error) {
	session, err := sqldb.OpenSession(ctx, d, db)
	if err != nil {
		return nil, err
	}
	c := &Claim{Session: session, pooled: d.Pooled}
	text := `SELECT pg_try_advisory_lock($1, $2)`
	switch {
	case d.Pooled && wait:
		text = `SELECT pg_advisory_xact_lock($1, $2) IS NOT NULL`
	case d.Pooled:
		text = `SELECT pg_try_advisory_xact_lock($1, $2)`
	case wait:
		text = `SELECT pg_advisory_lock($1, $2) IS NOT NULL`
	}
	if d.Pooled {
		if _, err := session.Run.ExecContext(ctx, "BEGIN; SET LOCAL "+idleSetting+" = 0"); err != nil {
			session.Drop()
			return nil, sqldb.Translate(d, err)
		}
	}
	var locked bool
	if err := (sqldb.Statements{Run: session.Run, Dialect: d}).Row(ctx, text, []any{LockClass, key}, &locked); err != nil {
		session.Drop()
		return nil, err
	}
	if !locked {
		c.Release()
		return nil, nil
	}
	return c, nil
}

// Release releases the lock.
func (c *Claim) Release() {
	if c.Session.Lost {
		return
	}
	if !c.pooled {
		c.Session.Drop() // this releases the lock
		return
	}
	if c.Session.Rollback(context.Background()); !c.Session.Lost {
		_ = c.Session.Close() // the connection returns to its pool
	}
}

// Held reports whether the process still seems to have the lock. Behind a pooler, it sends a query to check the
// connection.
func (c *Claim) Held(ctx context.Context) bool {
	if c.pooled && !c.Session.Lost {
		if _, err := c.Session.Run.ExecContext(ctx, "SELECT 1"); err != nil {
			c.Session.Drop()
		}
	}
	return !c.Session.Lost
}

// LockTimedOut reports whether a statement waited too long for a lock.
func LockTimedOut(err error) bool { return CodeOf(err) == pgLockNotAvailable }

// evictTimeout is the time limit of Evict.
const evictTimeout = 5 * time.Second

// Evict ends sessions that hold the lock of Transact or the lock on a row of the table sequences. It ends a session
// only if its client has sent nothing for idleBound in the middle of a transaction. The server itself ends sessions
// that are idle between two statements, but not within a batch of statements.
func (d *Database) Evict(ctx context.Context, db *sqldb.DB) {
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	var ended int64
	err := db.Row(ctx, `SELECT count(*) FROM (SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
		WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
		AND a.wait_event = 'ClientRead' AND a.xact_start IS NOT NULL
		AND clock_timestamp() - a.state_change > $1::bigint * interval '1 ms'
		AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.granted AND (
			l.relation = 'sequences'::regclass AND l.mode = 'RowExclusiveLock'
			OR l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid::bigint = $2 AND l.objid::bigint = $3 + 4294967296))) AS ended`,
		[]any{idleBound, LockClass, lockUpdate}, &ended)
	if err == nil && ended > 0 {
		d.Log.Warn("a process that was silent in the middle of a transaction has lost the transaction, because other processes waited for it", "transactions", ended)
	}
}

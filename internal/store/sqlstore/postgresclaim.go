package sqlstore

import (
	"context"
	"time"
)

// claim is a lock of the database that one process has until it gives it back, or
// loses the connection.
type claim struct {
	session *session
	pooled  bool
}

// claim takes a lock. Where it is not to be waited for it answers nil if somebody else
// has it. Behind a pooler the lock is one of a transaction that stays open: only that
// keeps a session.
func (d *postgres) claim(ctx context.Context, db pool, key int64, wait bool) (*claim, error) {
	session, err := openSession(ctx, d, db)
	if err != nil {
		return nil, err
	}
	c := &claim{session: session, pooled: d.pooled}
	text := `SELECT pg_try_advisory_lock($1, $2)`
	switch {
	case d.pooled && wait:
		text = `SELECT pg_advisory_xact_lock($1, $2) IS NOT NULL`
	case d.pooled:
		text = `SELECT pg_try_advisory_xact_lock($1, $2)`
	case wait:
		text = `SELECT pg_advisory_lock($1, $2) IS NOT NULL`
	}
	if d.pooled {
		if _, err := session.run.ExecContext(ctx, "BEGIN; SET LOCAL "+idleSetting+" = 0"); err != nil {
			session.drop()
			return nil, translate(d, err)
		}
	}
	var locked bool
	if err := (statements{run: session.run, dialect: d}).row(ctx, text, []any{lockClass, key}, &locked); err != nil {
		session.drop()
		return nil, err
	}
	if !locked {
		c.release()
		return nil, nil
	}
	return c, nil
}

// release gives the lock back.
func (c *claim) release() {
	if c.session.lost {
		return
	}
	if !c.pooled {
		c.session.drop() // and with it the lock
		return
	}
	if c.session.rollback(context.Background()); !c.session.lost {
		_ = c.session.close() // it goes back to its pool
	}
}

// held answers whether the process still has it, as far as can be known.
func (c *claim) held(ctx context.Context) bool {
	if c.pooled && !c.session.lost {
		if _, err := c.session.run.ExecContext(ctx, "SELECT 1"); err != nil {
			c.session.drop()
		}
	}
	return !c.session.lost
}

// lockTimedOut reports whether a statement waited too long for a lock.
func lockTimedOut(err error) bool { return codeOfServer(err) == pgLockNotAvailable }

// evictTimeout bounds the search for who sleeps with a lock.
const evictTimeout = 5 * time.Second

// evict ends the sessions that hold what orders the replicas, and whose clients have
// said nothing for a while in the middle of a transaction. The server itself ends those
// between two statements; not those that were stopped within a series of them.
func (d *postgres) evict(ctx context.Context, db *DB) {
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	var ended int64
	err := db.row(ctx, `SELECT count(*) FROM (SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
		WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
		AND a.wait_event = 'ClientRead' AND a.xact_start IS NOT NULL
		AND clock_timestamp() - a.state_change > $1::bigint * interval '1 ms'
		AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.granted AND (
			l.relation = 'sequences'::regclass AND l.mode = 'RowExclusiveLock'
			OR l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid::bigint = $2 AND l.objid::bigint = $3 + 4294967296))) AS ended`,
		[]any{idleBound, lockClass, lockUpdate}, &ended)
	if err == nil && ended > 0 {
		d.log.Warn("a process that did not go on in the middle of a transaction has lost it, because others waited for it", "transactions", ended)
	}
}

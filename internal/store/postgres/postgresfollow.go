package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/replication"
)

// Follow implements sqldb.Dialect.
func (d *Database) Follow(ctx context.Context, db *sqldb.DB) (*replication.Follower, error) {
	cfg, err := d.Config()
	if err != nil {
		return nil, err
	}
	var quiet silence
	source := replication.Source{
		State: func(ctx context.Context) (state replication.State, err error) {
			moment := d.conns.next()
			var settings string
			var refuses bool
			err = db.FreshReads().Row(ctx, `SELECT (SELECT value FROM sequences WHERE name = 'changes'), (SELECT value FROM sequences WHERE name = 'audit'), `+
				d.incarnation+`, `+sessionSettings+`, `+refusesWrites,
				nil, &state.Changes, &state.Audit, &state.Incarnation, &settings, &refuses)
			if err == nil {
				d.closeSilentConns(db, &quiet)
			}
			if refuses {
				d.sessions.refused.Store(true)
			}
			d.renew(settings, err, db.Options().Clock())
			d.recordQuery(ctx, err, moment, &quiet)
			return state, err
		},
		Reset: func(was, now replication.State) {
			// Another host may have become the primary although no query failed. Connections to the old host may
			// receive no more data.
			quiet.extend(0, d.conns.next())
			d.recordFailover(db, was, now)
		},
		Page: func(ctx context.Context, after int64, limit int) (keyserver.ChangePage, error) {
			moment := d.conns.next()
			page, err := sqldb.NewFeed(db.FreshReads()).Changes(ctx, after, limit)
			d.recordQuery(ctx, err, moment, &quiet)
			return page, err
		},
		PageLimit: sqldb.MaxChangePage,
		Notify:    db.Notify, Clock: db.Options().Clock, Logger: db.Options().Logger,
	}
	source.Listen = func(ctx context.Context) (replication.Listener, error) {
		if d.Pooled { // LISTEN needs a separate session
			return poller{}, nil
		}
		ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
		defer cancel()
		moment := d.conns.next()
		conn, err := d.hosts.connect(ctx, cfg)
		if err == nil {
			if _, err = conn.Exec(ctx, "LISTEN "+changeChannel); err != nil {
				err = errors.Join(err, conn.Close(ctx))
			}
		}
		d.recordQuery(ctx, err, moment, &quiet)
		if err != nil {
			return nil, err
		}
		return postgresListener{conn}, nil
	}
	return replication.Start(ctx, source)
}

// recordQuery records a timeout of a query of the follower. moment is the tick (connTracker) at which the query began.
// The driver closes the connection of such a query, so that the next query uses another connection.
func (d *Database) recordQuery(ctx context.Context, err error, moment int64, quiet *silence) {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		quiet.extend(moment, d.conns.next())
	}
}

// closeSilentConns records that the database has responded. It closes connections that have received no data since a
// silence. A statement that still waits on such a connection would never get a response: its host is gone, or a network
// device has dropped the connection.
func (d *Database) closeSilentConns(db *sqldb.DB, quiet *silence) {
	if n := d.conns.closeSilent(quiet.cutoff(db.Options().Clock())); n > 0 {
		d.dropIdle(db)
		d.Log.Warn("the database responds again, but not on older connections; they are closed", "connections", n)
	}
}

// silence is a period in which the database did not respond to the follower, in ticks of
// connTracker.
type silence struct {
	mu           sync.Mutex
	since, until int64     // begin of the first query that timed out, end of the last such query; 0: none
	answered     time.Time // time of the first response after the silence
}

// extend records that the database did not respond between the ticks since and until. since is 0 if only the end is
// known.
func (q *silence) extend(since, until int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.since == 0 {
		q.since = since
	}
	q.until, q.answered = until, time.Time{}
}

// cutoff records that a query got a response. It returns a tick: connections that have received no data since that tick
// must be closed. 0 means none. The first response returns the begin of the silence. Connections that received data
// during the silence may stay open for MaxStaleness, because a running statement may take a while. After that time,
// cutoff returns the end of the silence.
func (q *silence) cutoff(now time.Time) (since int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.until == 0:
		return 0
	case q.answered.IsZero():
		since, q.answered = q.since, now
		return since
	case now.Sub(q.answered) < replication.MaxStaleness:
		return 0
	default:
		since, q.since, q.until, q.answered = q.until, 0, 0, time.Time{}
		return since
	}
}

// recordFailover records that the database was restarted or replaced, or that changes or audit rows are
// missing. It closes idle connections, because they may lead to the old database.
func (d *Database) recordFailover(db *sqldb.DB, was, now replication.State) {
	gone := was.Changes > now.Changes || was.Audit > now.Audit
	db.RecordReplaced(gone)
	d.dropIdle(db)
	if !gone {
		d.Log.Info("the database was restarted, or another one has replaced it; all data is read again", "was", was.Incarnation, "now", now.Incarnation)
		return
	}
	d.Log.Error("the database has gone back: changes or audit rows that this process has read are missing, including acknowledged ones; see docs/guides/postgresql-failures.md",
		"changes", now.Changes, "changesSeen", was.Changes, "auditRows", now.Audit, "auditRowsSeen", was.Audit, "was", was.Incarnation, "now", now.Incarnation)
}

// dropIdle closes the idle connections of the pool for reads.
func (d *Database) dropIdle(db *sqldb.DB) {
	db.Pools().Read.SetMaxIdleConns(-1)
	db.Pools().Read.SetMaxIdleConns(d.readers())
}

// postgresListener waits for notifications on its own connection.
type postgresListener struct{ conn *pgx.Conn }

// Wait returns at a notification, or after atMost without one.
func (l postgresListener) Wait(ctx context.Context, atMost time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	_, err := l.conn.WaitForNotification(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil && !l.conn.IsClosed() {
		return nil // there was no notification until atMost
	}
	return err
}

// Close closes the connection.
func (l postgresListener) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx)
}

// poller implements replication.Listener without notifications.
type poller struct{}

// Wait returns after atMost.
func (poller) Wait(ctx context.Context, atMost time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(atMost):
		return nil
	}
}

// Close does nothing.
func (poller) Close() {}

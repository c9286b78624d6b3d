package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore/follow"
)

func (d *postgres) follow(ctx context.Context, s *Store) (*follow.Follower, error) {
	cfg, err := d.config()
	if err != nil {
		return nil, err
	}
	source := follow.Source{
		State: func(ctx context.Context) (state follow.State, err error) {
			err = s.row(ctx, `SELECT (SELECT value FROM sequences WHERE name = 'changes'), (SELECT value FROM sequences WHERE name = 'audit'), `+d.incarnation,
				nil, &state.Changes, &state.Audit, &state.Incarnation)
			return state, err
		},
		Reset: func(was, now follow.State) { d.moved(s, was, now) },
		Page:  s.Changes, PageLimit: maxChangePage,
		Notify: s.notify, Clock: s.cfg.Clock, Logger: s.cfg.Logger,
	}
	source.Listen = func(ctx context.Context) (follow.Listener, error) {
		if d.pooled { // a transaction cannot listen
			return poller{}, nil
		}
		conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
		if err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, "LISTEN "+changeChannel); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
		return postgresListener{conn}, nil
	}
	return follow.Start(ctx, source)
}

// moved is told that the database is another one, or has gone back. Connections to what
// was there before are not to be used again, if that still answers.
func (d *postgres) moved(s *Store, was, now follow.State) {
	s.pools.read.SetMaxIdleConns(-1)
	s.pools.read.SetMaxIdleConns(d.readers())
	if was.Changes <= now.Changes && was.Audit <= now.Audit {
		d.log.Info("the database was started anew, or another one has taken over; everything is read anew", "was", was.Incarnation, "now", now.Incarnation)
		return
	}
	s.lost.Add(1)
	d.log.Error("the database has gone back: changes or audit rows that this process had seen are gone, acknowledged ones among them; see docs/operations.md",
		"changes", now.Changes, "changesSeen", was.Changes, "auditRows", now.Audit, "auditRowsSeen", was.Audit, "was", was.Incarnation, "now", now.Incarnation)
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

// poller is told nothing, and looks each time.
type poller struct{}

// Wait returns when the time is over.
func (poller) Wait(ctx context.Context, atMost time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(atMost):
		return nil
	}
}

// Close has nothing to do.
func (poller) Close() {}

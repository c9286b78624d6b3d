package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/stmtcache"
)

// endTimeout bounds a commit or rollback, which the caller's context must not
// interrupt halfway.
const endTimeout = 10 * time.Second

// writer hands out the one connection on which this process writes.
type writer struct {
	db      pool
	dialect dialect
	turn    chan struct{} // holds a token while the writer is taken

	session *session // nil until used, and after its connection was lost
}

func newWriter(d dialect, db pool) *writer {
	return &writer{db: db, dialect: d, turn: make(chan struct{}, 1)}
}

func (w *writer) lock(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *writer) unlock() { <-w.turn }

// transact needs the lock. A connection that was kept may be dead by now: what it did not
// even begin is done on a new one.
func (w *writer) transact(ctx context.Context, fn func(in statements) error) error {
	kept := w.session != nil
	err := w.attempt(ctx, fn)
	var begin notBegunError
	if kept && w.session == nil && errors.As(err, &begin) && ctx.Err() == nil {
		return w.attempt(ctx, fn)
	}
	return err
}

func (w *writer) attempt(ctx context.Context, fn func(in statements) error) error {
	if w.session != nil && w.dialect.outdated(w.session.conn) {
		w.session.drop()
		w.session = nil
	}
	if w.session == nil {
		var err error
		if w.session, err = openSession(ctx, w.dialect, w.db); err != nil {
			return err
		}
	}
	err := w.session.transact(ctx, fn)
	if w.session.lost {
		w.session = nil
	}
	return err
}

// close waits for the transaction in flight.
func (w *writer) close() error {
	w.turn <- struct{}{}
	defer w.unlock()
	if w.session == nil {
		return nil
	}
	err := w.session.close()
	w.session = nil
	return err
}

// session is one connection that is kept for transactions.
type session struct {
	conn    *sql.Conn
	dialect dialect
	run     runner
	lost    bool // the connection is of no more use and was dropped
}

func openSession(ctx context.Context, d dialect, db pool) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, translate(d, err)
	}
	return &session{conn: conn, dialect: d, run: d.runnerOn(conn)}, nil
}

// notBegunError says that nothing of a transaction was done.
type notBegunError struct{ cause error }

func (e notBegunError) Error() string { return e.cause.Error() }
func (e notBegunError) Unwrap() error { return e.cause }

// transact commits what fn does, or undoes it where fn, or any statement of
// it, fails or panics.
func (s *session) transact(ctx context.Context, fn func(in statements) error) error {
	in := statements{run: s.run, dialect: s.dialect, failed: new(error)}
	if _, err := in.exec(s.dialect.statementContext(ctx), s.dialect.begin()); err != nil {
		s.rollback(ctx) // a cancelled BEGIN may have begun
		return notBegunError{err}
	}
	done := false
	defer func() {
		if !done {
			s.rollback(ctx)
		}
	}()
	if err := fn(in); err != nil {
		return err
	}
	if err := in.failure(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.dialect.inPlace(); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, err := s.run.ExecContext(s.dialect.statementContext(end), "COMMIT"); err != nil {
		return unavailable(fmt.Errorf("commit: %w", err))
	}
	done = true
	return nil
}

// rollback drops the connection unless it is certain to be clean.
func (s *session) rollback(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, err := s.run.ExecContext(end, "ROLLBACK"); err != nil {
		s.drop()
	}
}

// close gives the connection back to its pool. Statements that stay open on it
// would keep it alive when the pool closes, and SQLite would not fold its log.
func (s *session) close() error {
	return errors.Join(s.closeStatements(), s.conn.Close())
}

func (s *session) closeStatements() error {
	if p, ok := s.run.(*stmtcache.Statements); ok {
		return p.Close()
	}
	return nil
}

func (s *session) drop() {
	s.lost = true
	_ = s.closeStatements()                                      // the connection is given up anyway
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool close it
	_ = s.conn.Close()
}

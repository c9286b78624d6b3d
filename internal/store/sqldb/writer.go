package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/stmtcache"
)

// EndTimeout is the time limit of a commit or rollback. The caller's context does not
// interrupt them.
const EndTimeout = 10 * time.Second

// writer manages the connection for the write transactions of this process.
type writer struct {
	db      Pool
	dialect Dialect
	turn    chan struct{} // has an element while the writer is locked

	session *Session // nil until used, and after its connection was lost
}

func newWriter(d Dialect, db Pool) *writer {
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

// transact runs a transaction. The caller holds the lock. The connection of earlier transactions may be dead by now. So
// transact retries once on a new connection if the transaction could not begin.
func (w *writer) transact(ctx context.Context, fn func(in Statements) error) error {
	kept := w.session != nil
	err := w.attempt(ctx, fn)
	var begin notBegunError
	if kept && w.session == nil && errors.As(err, &begin) && ctx.Err() == nil {
		return w.attempt(ctx, fn)
	}
	return err
}

func (w *writer) attempt(ctx context.Context, fn func(in Statements) error) error {
	if w.session != nil && w.dialect.Outdated(w.session.Conn) {
		w.session.Drop()
		w.session = nil
	}
	if w.session == nil {
		var err error
		if w.session, err = OpenSession(ctx, w.dialect, w.db); err != nil {
			return err
		}
	}
	err := w.session.Transact(ctx, fn)
	if w.session.Lost {
		w.session = nil
	}
	return err
}

// close waits until the current transaction ends.
func (w *writer) close() error {
	w.turn <- struct{}{}
	defer w.unlock()
	if w.session == nil {
		return nil
	}
	err := w.session.Close()
	w.session = nil
	return err
}

// Session is one connection that is kept for transactions.
type Session struct {
	Conn    *sql.Conn
	dialect Dialect
	Run     Runner
	Lost    bool // the connection is unusable and was dropped
}

// OpenSession takes a connection from a pool, until Close or Drop.
func OpenSession(ctx context.Context, d Dialect, db Pool) (*Session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, Translate(d, err)
	}
	return &Session{Conn: conn, dialect: d, Run: d.RunnerOn(conn)}, nil
}

// notBegunError means that a transaction could not begin.
type notBegunError struct{ cause error }

// Error implements error.
func (e notBegunError) Error() string { return e.cause.Error() }
func (e notBegunError) Unwrap() error { return e.cause }

// Transact runs fn in a transaction and commits it. It rolls back if fn or one of its
// statements fails, or if fn panics.
func (s *Session) Transact(ctx context.Context, fn func(in Statements) error) error {
	in := Statements{Run: s.Run, Dialect: s.dialect, Failed: new(error)}
	if _, err := in.Exec(s.dialect.StatementContext(ctx), s.dialect.Begin()); err != nil {
		s.Rollback(ctx) // a cancelled BEGIN may have begun
		return notBegunError{err}
	}
	done := false
	defer func() {
		if !done {
			s.Rollback(ctx)
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
	if err := s.dialect.InPlace(); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), EndTimeout)
	defer cancel()
	if _, err := s.Run.ExecContext(s.dialect.StatementContext(end), "COMMIT"); err != nil {
		return Unavailable(fmt.Errorf("commit: %w", err))
	}
	done = true
	return nil
}

// Rollback ends the transaction. If that fails, it drops the connection, because the
// connection may still be in the transaction.
func (s *Session) Rollback(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), EndTimeout)
	defer cancel()
	if _, err := s.Run.ExecContext(end, "ROLLBACK"); err != nil {
		s.Drop()
	}
}

// Close returns the connection to its pool. Before that, it closes the prepared statements. Open statements would keep
// the connection alive when the pool closes, so SQLite would not copy its log into the database file.
func (s *Session) Close() error {
	return errors.Join(s.closeStatements(), s.Conn.Close())
}

func (s *Session) closeStatements() error {
	if p, ok := s.Run.(*stmtcache.Statements); ok {
		return p.Close()
	}
	return nil
}

// Drop closes an unusable connection.
func (s *Session) Drop() {
	s.Lost = true
	_ = s.closeStatements()                                      // the connection is closed anyway
	_ = s.Conn.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool close it
	_ = s.Conn.Close()
}

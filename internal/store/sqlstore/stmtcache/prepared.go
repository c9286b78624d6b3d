// Package stmtcache keeps statements prepared for a driver that does not do it
// itself.
package stmtcache

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// maxPrepared bounds the statements that are kept prepared. The store has far
// fewer; a text over the bound is prepared anew each time.
const maxPrepared = 256

// Place is what statements can be prepared and run on.
type Place interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
}

// Statements runs what it is given on a pool or a connection, and keeps it
// prepared.
type Statements struct {
	on Place

	mu    sync.RWMutex
	stmts map[string]*sql.Stmt
}

// On makes the statements of a place.
func On(place Place) *Statements { return &Statements{on: place} }

// QueryContext runs a query.
func (p *Statements) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	stmt, err := p.stmt(ctx, text)
	if err != nil {
		return nil, err
	}
	if stmt == nil {
		return p.on.QueryContext(ctx, text, args...)
	}
	return stmt.QueryContext(ctx, args...)
}

// ExecContext runs what is no query.
func (p *Statements) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	stmt, err := p.stmt(ctx, text)
	if err != nil {
		return nil, err
	}
	if stmt == nil {
		return p.on.ExecContext(ctx, text, args...)
	}
	return stmt.ExecContext(ctx, args...)
}

// stmt answers nil where no more statements are kept.
func (p *Statements) stmt(ctx context.Context, text string) (*sql.Stmt, error) {
	p.mu.RLock()
	stmt, full := p.stmts[text], len(p.stmts) >= maxPrepared
	p.mu.RUnlock()
	if stmt != nil || full {
		return stmt, nil
	}
	stmt, err := p.on.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.stmts[text]; first != nil { // somebody else was faster
		return first, stmt.Close()
	}
	if p.stmts == nil {
		p.stmts = make(map[string]*sql.Stmt)
	}
	p.stmts[text] = stmt
	return stmt, nil
}

// Close closes what is kept prepared.
func (p *Statements) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for text, stmt := range p.stmts {
		errs = append(errs, stmt.Close())
		delete(p.stmts, text)
	}
	return errors.Join(errs...)
}

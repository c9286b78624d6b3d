// Package stmtcache is a statement cache for drivers that do not have one.
package stmtcache

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// maxPrepared is the maximum number of cached statements. The store uses far fewer.
// If the cache is full, further statements run without the cache.
const maxPrepared = 256

// Preparer is a pool or a connection: it prepares and runs statements.
type Preparer interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
}

// Statements prepares statements on a pool or a connection, runs them, and
// caches them.
type Statements struct {
	on Preparer

	mu    sync.RWMutex
	stmts map[string]*sql.Stmt
}

// On returns a statement cache for a pool or a connection.
func On(place Preparer) *Statements { return &Statements{on: place} }

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

// ExecContext runs a statement that is not a query.
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

// stmt returns a prepared statement, or nil if the cache is full.
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
	if first := p.stmts[text]; first != nil { // another goroutine has stored the statement
		return first, stmt.Close()
	}
	if p.stmts == nil {
		p.stmts = make(map[string]*sql.Stmt)
	}
	p.stmts[text] = stmt
	return stmt, nil
}

// Close closes the cached statements.
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

package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Runner runs one statement. It is a pool or a connection, with or without a statement cache.
type Runner interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
}

// Statements runs queries and translates their errors.
type Statements struct {
	Run     Runner
	Dialect Dialect
	// Failed keeps the first error of a transaction's statements. It is nil outside of a
	// transaction. PostgreSQL aborts a transaction at its first error. So that both databases
	// behave alike, Transact never commits after an error.
	Failed *error
	// macs checks the rows that are read. If visit is set, visit gets the rows instead (Visiting).
	macs  *macs
	visit func(row *rowmac.Row, mac []byte) error
}

// Visiting returns a copy of s that passes each row with a MAC to visit, instead of checking the
// MAC.
func (s Statements) Visiting(visit func(row *rowmac.Row, mac []byte) error) Statements {
	s.visit = visit
	return s
}

// Fail translates an error of a statement. It keeps the first error of a transaction in Failed.
func (s Statements) Fail(ctx context.Context, err error) error {
	err = Translate(s.Dialect, err)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // the driver may return another error then
	}
	if err != nil && s.Failed != nil && *s.Failed == nil {
		*s.Failed = err
	}
	return err
}

// failure returns the first error of the transaction, even if the caller ignored it.
func (s Statements) failure() error {
	if s.Failed == nil {
		return nil
	}
	return *s.Failed
}

// Exec runs a statement and returns the number of affected rows.
func (s Statements) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	result, err := s.Run.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, s.Fail(ctx, err)
	}
	n, err := result.RowsAffected()
	return n, s.Fail(ctx, err)
}

// ExecOne is Exec for a statement that changes one row. It returns ErrNotFound if the
// statement affects no row.
func (s Statements) ExecOne(ctx context.Context, text string, args ...any) error {
	n, err := s.Exec(ctx, text, args...)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// Each runs a query and calls scan for every row.
func (s Statements) Each(ctx context.Context, text string, args []any, scan func(Scanner) error) error {
	rows, err := s.Run.QueryContext(ctx, text, args...)
	if err != nil {
		return s.Fail(ctx, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return s.Fail(ctx, err)
		}
	}
	return s.Fail(ctx, rows.Err())
}

// Row runs a query and scans its first row, or returns ErrNotFound.
func (s Statements) Row(ctx context.Context, text string, args []any, dest ...any) error {
	found := false
	err := s.Each(ctx, text, args, func(row Scanner) error {
		if found {
			return nil
		}
		found = true
		return row.Scan(dest...)
	})
	if err == nil && !found {
		return ErrNotFound
	}
	return err
}

// Found reports whether a query returns a row. The query must select one integer column.
func (s Statements) Found(ctx context.Context, text string, args ...any) (bool, error) {
	var one int
	err := s.Row(ctx, text, args, &one)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Scanner is a row whose columns can be read.
type Scanner interface{ Scan(dest ...any) error }

// Insert is an INSERT statement in several sizes, that is, numbers of rows.
type Insert struct {
	Columns int
	Sizes   []sizedInsert // descending; the last one inserts one row
}

type sizedInsert struct {
	Rows int
	Text string
}

// NewInsert returns an Insert. after is an optional clause after VALUES, such as ON CONFLICT.
func NewInsert(d Dialect, into string, columns int, after ...string) Insert {
	ins := Insert{Columns: columns}
	for _, rows := range []int{32, 16, 8, 4, 2, 1} {
		ins.Sizes = append(ins.Sizes, sizedInsert{rows, strings.Join(append([]string{into, "VALUES", d.Placeholders(rows, columns)}, after...), " ")})
	}
	return ins
}

// Run inserts rows. args has the columns of the first row, then of the second row, and so on.
func (ins Insert) Run(ctx context.Context, in Statements, args []any) error {
	for _, size := range ins.Sizes {
		for n := size.Rows * ins.Columns; len(args) >= n; args = args[n:] {
			if _, err := in.Exec(ctx, size.Text, args[:n]...); err != nil {
				return err
			}
		}
	}
	return nil
}

// IDs scans the only column of every row.
func (s Statements) IDs(ctx context.Context, text string, args ...any) ([]keyserver.ID, error) {
	var ids []keyserver.ID
	err := s.Each(ctx, text, args, func(row Scanner) error {
		var id keyserver.ID
		if err := row.Scan(IntoID(&id)); err != nil {
			return err
		}
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

package sqlstore

import (
	"context"
	"database/sql"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// runner runs one statement: a pool, a connection, or one of them with its
// statements kept prepared.
type runner interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
}

// statements runs the queries of this package and translates their errors.
type statements struct {
	run     runner
	dialect dialect
	// failed keeps the first error of a transaction's statements, nil outside
	// of one. PostgreSQL gives a transaction up at its first error; so that
	// both databases behave alike, Update never commits after one.
	failed *error
	// macs check the rows that are read; visit is shown them instead, where all
	// rows are gone through.
	macs  *macs
	visit func(row *rowmac.Row, mac []byte) error
}

func (s statements) fail(ctx context.Context, err error) error {
	err = translate(s.dialect, err)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // however the driver put it
	}
	if err != nil && s.failed != nil && *s.failed == nil {
		*s.failed = err
	}
	return err
}

// failure is the first error of the transaction, also one that was passed over.
func (s statements) failure() error {
	if s.failed == nil {
		return nil
	}
	return *s.failed
}

// exec runs a statement and answers how many rows it hit.
func (s statements) exec(ctx context.Context, text string, args ...any) (int64, error) {
	result, err := s.run.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, s.fail(ctx, err)
	}
	n, err := result.RowsAffected()
	return n, s.fail(ctx, err)
}

// execOne is exec for a statement that names one row: ErrNotFound where it
// hits none.
func (s statements) execOne(ctx context.Context, text string, args ...any) error {
	n, err := s.exec(ctx, text, args...)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// each runs a query and calls scan for every row.
func (s statements) each(ctx context.Context, text string, args []any, scan func(scanner) error) error {
	rows, err := s.run.QueryContext(ctx, text, args...)
	if err != nil {
		return s.fail(ctx, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return s.fail(ctx, err)
		}
	}
	return s.fail(ctx, rows.Err())
}

// row runs a query and scans its first row, or answers ErrNotFound.
func (s statements) row(ctx context.Context, text string, args []any, dest ...any) error {
	found := false
	err := s.each(ctx, text, args, func(row scanner) error {
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

type scanner interface{ Scan(dest ...any) error }

// insert is a statement that inserts rows, in the sizes in which it is used.
type insert struct {
	columns int
	sizes   []sizedInsert // falling, the last inserts one row
}

type sizedInsert struct {
	rows int
	text string
}

// newInsert makes an insert; after says what becomes of a row that is there already.
func newInsert(d dialect, into string, columns int, after ...string) insert {
	ins := insert{columns: columns}
	for _, rows := range []int{32, 16, 8, 4, 2, 1} {
		ins.sizes = append(ins.sizes, sizedInsert{rows, strings.Join(append([]string{into, "VALUES", d.placeholders(rows, columns)}, after...), " ")})
	}
	return ins
}

// run inserts the rows whose columns stand in args one after the other.
func (ins insert) run(ctx context.Context, in statements, args []any) error {
	for _, size := range ins.sizes {
		for n := size.rows * ins.columns; len(args) >= n; args = args[n:] {
			if _, err := in.exec(ctx, size.text, args[:n]...); err != nil {
				return err
			}
		}
	}
	return nil
}

// ids scans the only column of every row.
func (s statements) ids(ctx context.Context, text string, args ...any) ([]keyserver.ID, error) {
	var ids []keyserver.ID
	err := s.each(ctx, text, args, func(row scanner) error {
		var id keyserver.ID
		if err := row.Scan(intoID(&id)); err != nil {
			return err
		}
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

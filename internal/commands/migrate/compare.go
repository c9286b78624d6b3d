package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/snapshot"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
)

// same compares each row of each table in both databases, which return the rows in the same order.
func same(ctx context.Context, from *snapshot.Snapshot, store *sqlstore.Store) (err error) {
	to, err := store.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	for _, t := range from.Tables {
		if err := sameTable(ctx, from, to, t); err != nil {
			return fmt.Errorf("the copy of the table %s differs from the original: %w; nothing was moved", t.Name, err)
		}
	}
	return nil
}

func sameTable(ctx context.Context, from, to *snapshot.Snapshot, t snapshot.Table) error {
	types := make([]pgcopy.Type, len(t.Columns))
	for i, c := range t.Columns {
		types[i] = c.Type
	}
	sorted := func(s *snapshot.Snapshot) *streamed {
		return stream(func(w io.Writer) error {
			_, err := s.Sorted(ctx, t, w)
			return err
		})
	}
	was, is := sorted(from), sorted(to)
	defer was.end()
	defer is.end()
	wasRows, isRows := pgcopy.NewReader(was, types), pgcopy.NewReader(is, types)
	for {
		one, err := next(wasRows)
		if err != nil {
			return err
		}
		other, err := next(isRows)
		switch {
		case err != nil:
			return err
		case one == nil && other == nil:
			return nil
		case one == nil || other == nil:
			return fmt.Errorf("the copy has %s rows, after %d equal rows", map[bool]string{true: "more", false: "fewer"}[one == nil], min(wasRows.Rows(), isRows.Rows()))
		}
		if columns := differ(t, one, other); len(columns) > 0 {
			return fmt.Errorf("row %d in sort order differs in %s", wasRows.Rows(), strings.Join(columns, ", "))
		}
	}
}

// next returns the next row, or nil after the last row.
func next(rows *pgcopy.Reader) ([]any, error) {
	row, err := rows.Next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return row, err
}

// differ returns the names of the columns that differ, without their values.
func differ(t snapshot.Table, one, other []any) (columns []string) {
	for i := range one {
		a, bytesA := one[i].([]byte)
		b, bytesB := other[i].([]byte)
		if bytesA && bytesB {
			if bytes.Equal(a, b) {
				continue
			}
		} else if !bytesA && !bytesB && one[i] == other[i] {
			continue
		}
		columns = append(columns, t.Columns[i].Name)
	}
	return columns
}

// streamed is a pipe to which a goroutine writes. The reader gets the goroutine's error.
type streamed struct {
	*io.PipeReader
	ended chan struct{}
}

func stream(write func(io.Writer) error) *streamed {
	r, w := io.Pipe()
	s := &streamed{r, make(chan struct{})}
	go func() {
		defer close(s.ended)
		_ = w.CloseWithError(write(w)) // CloseWithError returns no error
	}()
	return s
}

// end closes the pipe and waits for the goroutine.
func (s *streamed) end() {
	_ = s.Close() // Close returns no error
	<-s.ended
}

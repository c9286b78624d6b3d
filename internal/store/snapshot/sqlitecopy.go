package snapshot

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/stmtcache"
)

// sqliteTables implements tables for SQLite.
type sqliteTables struct{ d *sqlite.Database }

// sqliteView implements view for SQLite. Writes continue, but the write-ahead log grows until the view is closed.
type sqliteView struct{ viewTx }

func (t sqliteTables) view(ctx context.Context, of *Source) (_ view, err error) {
	if !of.copying.CompareAndSwap(false, true) {
		return nil, errCopying()
	}
	v := &sqliteView{viewTx{dialect: t.d, of: of, db: t.d.Pool("ro", 1)}}
	defer func() {
		if err != nil {
			err = errors.Join(sqldb.Translate(t.d, err), v.close())
		}
	}()
	if v.conn, err = v.db.Conn(ctx); err != nil {
		return nil, err
	}
	if _, err = v.conn.ExecContext(ctx, `BEGIN`); err != nil {
		return nil, err
	}
	// The first read determines the state that the view sees.
	err = v.conn.QueryRowContext(ctx, `SELECT 1 FROM sqlite_schema LIMIT 1`).Scan(new(int))
	return v, err
}

// columns implements tables.
func (t sqliteTables) columns(ctx context.Context, in sqldb.Statements) ([]Table, error) {
	return catalogue{
		columns: `SELECT t.name, c.name, c.type FROM sqlite_schema t, pragma_table_info(t.name) c
			WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name, c.cid`,
		refers: `SELECT t.name, f."table" FROM sqlite_schema t, pragma_foreign_key_list(t.name) f WHERE t.type = 'table'`,
		types:  map[string]pgcopy.Type{"INTEGER": pgcopy.Int, "TEXT": pgcopy.Text, "BLOB": pgcopy.Bytes}, // all types that our STRICT tables use
	}.read(ctx, in)
}

// bytewise implements view. The default collation of SQLite is BINARY.
func (v *sqliteView) bytewise(c Column) string { return c.Name }

// copy implements view. It calls the driver directly, because database/sql needs more time for each field than SQLite.
func (v *sqliteView) copy(ctx context.Context, t Table, order string, to io.Writer) (n int64, err error) {
	text := `SELECT ` + t.columns() + ` FROM ` + t.Name
	if order != "" {
		text += ` ORDER BY ` + order
	}
	err = v.conn.Raw(func(conn any) error {
		asks, ok := conn.(driver.QueryerContext)
		if !ok {
			return errors.New("the SQLite driver has no raw queries")
		}
		rows, err := asks.QueryContext(ctx, text, nil)
		if err != nil {
			return sqldb.Translate(v.dialect, err)
		}
		defer rows.Close() //nolint:errcheck // read to its end, or abandoned
		w, types := pgcopy.NewWriter(to), t.types()
		read, values := make([]driver.Value, len(types)), make([]any, len(types))
		for {
			switch err := rows.Next(read); {
			case errors.Is(err, io.EOF):
				return w.Close()
			case err != nil:
				return sqldb.Translate(v.dialect, err)
			}
			for i, value := range read {
				if value == nil {
					values[i] = nil
					continue
				}
				values[i] = value
			}
			if err := w.Row(types, values); err != nil {
				return fmt.Errorf("copy %s: %w", t.Name, err)
			}
			n++
		}
	})
	return n, err
}

func (v *sqliteView) close() error {
	var err error
	if v.conn != nil {
		err = v.conn.Close()
	}
	err = errors.Join(err, v.db.Close()) // also ends the transaction
	v.of.copying.Store(false)
	return err
}

func (t sqliteTables) ready(context.Context, sqldb.Statements, int64) error { return nil }

func (t sqliteTables) load(ctx context.Context, on *sql.Conn, of Table, rows *pgcopy.Reader) error {
	kept := stmtcache.On(on)
	err := loadRows(ctx, t.d, sqldb.Statements{Run: kept, Dialect: t.d}, of, rows)
	return errors.Join(err, kept.Close())
}

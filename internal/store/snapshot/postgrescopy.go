package snapshot

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/auditrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
)

// postgresTables implements tables for PostgreSQL.
type postgresTables struct{ d *postgres.Database }

// postgresView implements view for PostgreSQL.
type postgresView struct{ viewTx }

func (t postgresTables) view(ctx context.Context, of *Source) (_ view, err error) {
	cfg, err := t.d.Config()
	if err != nil {
		return nil, err
	}
	v := &postgresView{viewTx{dialect: t.d, of: of, db: t.d.Pool(cfg, 1, "")}}
	defer func() {
		if err != nil {
			err = errors.Join(sqldb.Translate(t.d, err), v.close())
		}
	}()
	if v.conn, err = v.db.Conn(ctx); err != nil {
		return nil, err
	}
	// The copy of a large table may take long.
	for _, text := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`,
		`SET LOCAL statement_timeout = 0`, `SET LOCAL idle_in_transaction_session_timeout = 0`} {
		if _, err = v.conn.ExecContext(ctx, text); err != nil {
			return nil, err
		}
	}
	var alone bool
	// This first statement takes the snapshot and the lock. The lock ends with the
	// transaction.
	err = v.conn.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock($1, $2)`, postgres.LockClass, postgres.LockCopy).Scan(&alone)
	if err == nil && !alone {
		err = errCopying()
	}
	return v, err
}

// columns lists the tables except partitions.
func (t postgresTables) columns(ctx context.Context, in sqldb.Statements) ([]Table, error) {
	return catalogue{
		columns: `SELECT t.relname::text, a.attname::text, a.atttypid::regtype::text
			FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace JOIN pg_attribute a ON a.attrelid = t.oid
			WHERE n.nspname = current_schema() AND t.relkind IN ('r', 'p') AND NOT t.relispartition AND a.attnum > 0 AND NOT a.attisdropped
			ORDER BY t.relname, a.attnum`,
		refers: `SELECT t.relname::text, f.relname::text FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid JOIN pg_class f ON f.oid = c.confrelid
			JOIN pg_namespace n ON n.oid = t.relnamespace WHERE c.contype = 'f' AND n.nspname = current_schema()`,
		types: map[string]pgcopy.Type{
			"bigint": pgcopy.Int, "integer": pgcopy.Int, "smallint": pgcopy.Int, "text": pgcopy.Text, "bytea": pgcopy.Bytes,
		},
	}.read(ctx, in)
}

// bytewise implements view. By default, the database would order texts by its locale.
func (v *postgresView) bytewise(c Column) string {
	if c.Type == pgcopy.Text {
		return c.Name + ` COLLATE "C" NULLS FIRST`
	}
	return c.Name + ` NULLS FIRST`
}

// copy implements view. The server encodes the rows.
func (v *postgresView) copy(ctx context.Context, t Table, order string, to io.Writer) (rows int64, err error) {
	columns := ""
	for i, c := range t.Columns {
		if i > 0 {
			columns += ", "
		}
		if columns += c.Name; c.Type == pgcopy.Int {
			columns += "::bigint"
		}
	}
	text := `SELECT ` + columns + ` FROM ` + t.Name
	if order != "" {
		text += ` ORDER BY ` + order
	}
	err = v.conn.Raw(func(conn any) error {
		pg := conn.(*stdlib.Conn).Conn().PgConn() //nolint:errcheck,forcetypeassert // no other driver is behind this dialect
		done, err := pg.CopyTo(ctx, to, `COPY (`+text+`) TO STDOUT (FORMAT binary)`)
		rows = done.RowsAffected()
		return err
	})
	if err != nil {
		err = fmt.Errorf("copy %s: %w", t.Name, sqldb.Translate(v.dialect, err))
	}
	return rows, err
}

func (v *postgresView) close() error {
	if v.conn == nil {
		return v.db.Close()
	}
	// Close the connection, because a query may be in progress.
	_ = v.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = v.conn.Close()
	return v.db.Close()
}

// ready creates the partitions for audit rows up to last. Otherwise, rows would stay in the
// default partition until they are archived.
func (t postgresTables) ready(ctx context.Context, in sqldb.Statements, last int64) error {
	var end int64
	err := in.Each(ctx, `SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'audit'::regclass`, nil, func(row sqldb.Scanner) error {
		var name string
		if err := row.Scan(&name); err != nil {
			return err
		}
		if n, err := strconv.ParseInt(strings.TrimPrefix(name, auditrows.PartitionPrefix), 10, 64); err == nil {
			end = max(end, n)
		}
		return nil
	})
	if err != nil || end == 0 { // the schema is from a version without partitions
		return err
	}
	for ; end < last; end += auditrows.PartitionRows {
		if _, err := in.Exec(ctx, fmt.Sprintf(`CREATE TABLE %s PARTITION OF audit FOR VALUES FROM (%d) TO (%d)`,
			auditrows.Partition(end+auditrows.PartitionRows), end+1, end+auditrows.PartitionRows+1)); err != nil {
			return err
		}
	}
	return nil
}

// load implements tables. The driver converts numbers to the types of their columns.
func (t postgresTables) load(ctx context.Context, on *sql.Conn, of Table, rows *pgcopy.Reader) error {
	names := make([]string, len(of.Columns))
	for i, c := range of.Columns {
		names[i] = c.Name
	}
	return on.Raw(func(conn any) error {
		pg := conn.(*stdlib.Conn).Conn() //nolint:errcheck,forcetypeassert // no other driver is behind this dialect
		var failed error
		_, err := pg.CopyFrom(ctx, pgx.Identifier{of.Name}, names, pgx.CopyFromFunc(func() ([]any, error) {
			row, err := rows.Next()
			if errors.Is(err, io.EOF) {
				return nil, nil
			}
			failed = err
			return row, err
		}))
		if failed != nil {
			return failed
		}
		return err
	})
}

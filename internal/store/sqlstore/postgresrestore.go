package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
)

// raise takes an empty database. Whoever starts to serve from it meanwhile waits.
func (d *postgres) raise(ctx context.Context) (pools, error) {
	p, err := d.open(ctx)
	if err != nil {
		return pools{}, err
	}
	unlock, err := d.lockMigrations(ctx, p.read)
	if err != nil {
		return pools{}, errors.Join(translate(d, err), p.close())
	}
	p.held = append(p.held, closer(unlock))
	if err := d.clear(ctx, p.write); err != nil {
		return pools{}, errors.Join(err, unlock(), pools{look: p.look, read: p.read, write: p.write}.close())
	}
	return p, nil
}

type closer func() error

func (c closer) Close() error { return c() }

// clear refuses a database that has tables, but those that an interrupted restore left,
// which it removes.
func (d *postgres) clear(ctx context.Context, db pool) error {
	all, left, err := d.tables(ctx, db, versionsOf(d))
	switch {
	case err != nil:
		return translate(d, err)
	case all > 0 && left == 0:
		return refuse(ErrUnusable, "the database has tables: it takes an empty database or schema, and nothing is replaced")
	}
	if err := d.takesWrites(ctx, db); err != nil || left == 0 {
		return err
	}
	return d.sweep(ctx, db)
}

// takesWrites refuses a database in which every transaction is read-only.
func (d *postgres) takesWrites(ctx context.Context, db pool) error {
	var reads string
	if err := db.QueryRowContext(ctx, `SHOW transaction_read_only`).Scan(&reads); err != nil {
		return translate(d, err)
	}
	if reads == "on" {
		return refuse(ErrUnusable, "the database is read-only for this user (default_transaction_read_only), and nothing can be written to it: name another one, or have it take writes")
	}
	return nil
}

// sweep removes what is not whole.
func (d *postgres) sweep(ctx context.Context, db pool) error {
	names := []string{}
	for name := range rowmac.Tables {
		names = append(names, name)
	}
	for name := range rowmac.Without {
		if name != versionTable {
			names = append(names, name)
		}
	}
	// The last one is what says that the others are not whole.
	for _, text := range []string{strings.Join(names, ", "), versionsOf(d)} {
		if _, err := db.ExecContext(ctx, `DROP TABLE IF EXISTS `+text+` CASCADE`); err != nil {
			return translate(d, err)
		}
	}
	return nil
}

func (d *postgres) columns(ctx context.Context, in reads) ([]Table, error) {
	return postgresTables(ctx, in)
}

// ready makes the partitions of rows that are to come. Those that go to the default one
// would be there until they are archived.
func (d *postgres) ready(ctx context.Context, in statements, last int64) error {
	var end int64
	err := in.each(ctx, `SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'audit'::regclass`, nil, func(row scanner) error {
		var name string
		if err := row.Scan(&name); err != nil {
			return err
		}
		if n, err := strconv.ParseInt(strings.TrimPrefix(name, partitionPrefix), 10, 64); err == nil {
			end = max(end, n)
		}
		return nil
	})
	if err != nil || end == 0 { // of a version without any
		return err
	}
	for ; end < last; end += partitionRows {
		if _, err := in.exec(ctx, fmt.Sprintf(`CREATE TABLE %s PARTITION OF audit FOR VALUES FROM (%d) TO (%d)`,
			partition(end+partitionRows), end+1, end+partitionRows+1)); err != nil {
			return err
		}
	}
	return nil
}

// load has the server read rows; the driver gives numbers the width of their columns.
func (d *postgres) load(ctx context.Context, on *sql.Conn, t Table, rows *pgcopy.Reader) error {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return on.Raw(func(conn any) error {
		pg := conn.(*stdlib.Conn).Conn() //nolint:errcheck,forcetypeassert // no other driver is behind this dialect
		var failed error
		_, err := pg.CopyFrom(ctx, pgx.Identifier{t.Name}, names, pgx.CopyFromFunc(func() ([]any, error) {
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

// finish gives the table of the version its name, by which everybody knows the database.
func (d *postgres) finish(ctx context.Context, s *Store) error {
	_, err := s.pools.write.ExecContext(ctx, `ALTER TABLE `+versionsOf(d)+` RENAME TO `+versionTable)
	return errors.Join(translate(d, err), s.Close())
}

func (d *postgres) raze(ctx context.Context, s *Store) error {
	return errors.Join(d.sweep(ctx, s.pools.read), s.Close())
}

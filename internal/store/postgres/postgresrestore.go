package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
)

// ClaimEmpty opens an empty database for a restore. Other processes that open the database wait until the restore ends.
func (d *Database) ClaimEmpty(ctx context.Context) (sqldb.Pools, error) {
	p, err := d.Open(ctx)
	if err != nil {
		return sqldb.Pools{}, err
	}
	unlock, err := d.LockMigrations(ctx, p.Read)
	if err != nil {
		return sqldb.Pools{}, errors.Join(sqldb.Translate(d, err), p.Close())
	}
	p.Closers = append(p.Closers, closer(unlock))
	if err := d.clear(ctx, p.Write); err != nil {
		return sqldb.Pools{}, errors.Join(err, unlock(), sqldb.Pools{Look: p.Look, Read: p.Read, Write: p.Write}.Close())
	}
	return p, nil
}

type closer func() error

// Close implements io.Closer.
func (c closer) Close() error { return c() }

// clear rejects a database that has tables, except those of an interrupted restore. It
// drops the tables of an interrupted restore.
func (d *Database) clear(ctx context.Context, db sqldb.Pool) error {
	all, left, err := d.Tables(ctx, db, d.VersionTable())
	switch {
	case err != nil:
		return sqldb.Translate(d, err)
	case all > 0 && left == 0:
		return sqldb.Refuse(sqldb.ErrUnusable, "the database has tables; name an empty database or schema, because no table is replaced")
	}
	if err := d.checkWritable(ctx, db); err != nil || left == 0 {
		return err
	}
	return d.sweep(ctx, db)
}

// checkWritable returns an error if transactions in the database are read-only by default.
func (d *Database) checkWritable(ctx context.Context, db sqldb.Pool) error {
	var reads string
	if err := db.QueryRowContext(ctx, `SHOW transaction_read_only`).Scan(&reads); err != nil {
		return sqldb.Translate(d, err)
	}
	if reads == "on" {
		return sqldb.Refuse(sqldb.ErrUnusable, "the database is read-only for this user (default_transaction_read_only); name another database, or allow writes")
	}
	return nil
}

// sweep drops the tables of an incomplete database.
func (d *Database) sweep(ctx context.Context, db sqldb.Pool) error {
	names := []string{}
	for name := range rowmac.Tables {
		names = append(names, name)
	}
	for name := range rowmac.UncoveredTables {
		if name != sqldb.VersionTable {
			names = append(names, name)
		}
	}
	// Drop the version table last: while it exists, the database is known to be incomplete.
	for _, text := range []string{strings.Join(names, ", "), d.VersionTable()} {
		if _, err := db.ExecContext(ctx, `DROP TABLE IF EXISTS `+text+` CASCADE`); err != nil {
			return sqldb.Translate(d, err)
		}
	}
	return nil
}

// Finish gives the version table its final name. After that, programs accept the database.
func (d *Database) Finish(ctx context.Context, db *sqldb.DB) error {
	_, err := db.Pools().Write.ExecContext(ctx, `ALTER TABLE `+d.VersionTable()+` RENAME TO `+sqldb.VersionTable)
	return errors.Join(sqldb.Translate(d, err), db.Close())
}

// Discard drops the tables of a restore that was not completed, and closes the database.
func (d *Database) Discard(ctx context.Context, db *sqldb.DB) error {
	return errors.Join(d.sweep(ctx, db.Pools().Read), db.Close())
}

package sqlstore

import (
	"context"
	"errors"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
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
	all, left, err := d.tables(ctx, db, d.versionTable())
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
	for _, text := range []string{strings.Join(names, ", "), d.versionTable()} {
		if _, err := db.ExecContext(ctx, `DROP TABLE IF EXISTS `+text+` CASCADE`); err != nil {
			return translate(d, err)
		}
	}
	return nil
}

// finish gives the table of the version its name, by which everybody knows the database.
func (d *postgres) finish(ctx context.Context, db *DB) error {
	_, err := db.Pools().write.ExecContext(ctx, `ALTER TABLE `+d.versionTable()+` RENAME TO `+versionTable)
	return errors.Join(translate(d, err), db.Close())
}

func (d *postgres) raze(ctx context.Context, db *DB) error {
	return errors.Join(d.sweep(ctx, db.Pools().read), db.Close())
}

package sqlstore

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/pressly/goose/v3"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore/datadir"
)

// WithJournal is for the bounds and faults of a journal.
func (c Config) WithJournal(o journal.Options) Config {
	c.journal = o
	return c
}

// Versions are those that the schema has had, in order.
func Versions() (all []int64) {
	names, err := fs.Glob(migrationDir("sqlite"), "*.sql")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		number, err := goose.NumericComponent(name)
		if err != nil {
			panic(err)
		}
		all = append(all, number)
	}
	return all
}

// MigrateTo brings a database up to a version of the schema, and makes it where there is
// none.
func MigrateTo(ctx context.Context, cfg Config, version int64) (err error) {
	if cfg, err = cfg.complete(); err != nil {
		return err
	}
	var db pool
	d := dialectOf(cfg)
	switch d := d.(type) {
	case *sqlite:
		if err := datadir.CreatePrivate(d.path()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		db = d.pool("rw", 1)
	case *postgres:
		of, err := d.config()
		if err != nil {
			return err
		}
		db = d.pool(of, 1, "")
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := newProvider(d, db)
	if err == nil {
		_, err = p.UpTo(ctx, version)
	}
	return err
}

// MigrationText is what a migration consists of, by the directory of its dialect.
func MigrationText(dialect string, version int64) (string, error) {
	files := migrationDir(dialect)
	names, err := fs.Glob(files, "*.sql")
	for _, name := range names {
		if number, numberErr := goose.NumericComponent(name); numberErr == nil && number == version {
			text, readErr := fs.ReadFile(files, name)
			return string(text), readErr
		}
	}
	return "", errors.Join(err, os.ErrNotExist)
}

// Release is a published one, with the version of the schema that it ended with.
type Release struct {
	Name   string
	Schema int64
}

// Releases are those that were published, in order.
func Releases() (all []Release) {
	for _, r := range releases {
		all = append(all, Release{r.name, r.schema})
	}
	return all
}

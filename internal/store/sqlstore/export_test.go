package sqlstore

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing/fstest"

	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	driver "modernc.org/sqlite"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// WithJournal sets the options of the journal.
func (c Config) WithJournal(o journal.Options) Config {
	c.journal = o
	return c
}

// Versions returns all versions of the schema, in order.
func Versions() (all []int64) {
	names, err := fs.Glob(sqldb.MigrationDir("sqlite"), "*.sql")
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

// MigrateTo migrates a database to a version of the schema. It creates a missing database.
func MigrateTo(ctx context.Context, cfg Config, version int64) error {
	return migrateAlone(ctx, cfg, version, func(files fs.FS) (fs.FS, error) { return files, nil })
}

// DieMigrating is MigrateTo, but kills the process with SIGKILL in the last migration, after
// the first behind statements, or after the last statement.
func DieMigrating(ctx context.Context, cfg Config, version int64, behind int) error {
	return migrateAlone(ctx, cfg, version, func(files fs.FS) (fs.FS, error) {
		deadly, death := fstest.MapFS{}, "SELECT die_now();\n"
		if cfg.URL != "" {
			death = "-- +goose StatementBegin\nDO $$ BEGIN RAISE NOTICE 'die now'; END $$;\n-- +goose StatementEnd\n"
		}
		names, err := fs.Glob(files, "*.sql")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				return nil, err
			}
			if number, err := goose.NumericComponent(name); err == nil && number == version {
				text = []byte(within(string(text), behind, death))
			}
			deadly[name] = &fstest.MapFile{Data: text}
		}
		return deadly, nil
	})
}

// within inserts a statement after the first behind statements of a migration. Each statement
// ends at the end of a line.
func within(text string, behind int, statement string) string {
	var b strings.Builder
	whole, put := false, false
	for line := range strings.Lines(text) {
		b.WriteString(line)
		switch {
		case strings.Contains(line, "+goose StatementBegin"):
			whole = true
		case strings.Contains(line, "+goose StatementEnd"):
			whole = false
		}
		if strings.HasSuffix(strings.TrimSpace(line), ";") && !whole {
			if behind--; behind == 0 {
				b.WriteString(statement)
				put = true
			}
		}
	}
	if !put {
		b.WriteString("\n" + statement)
	}
	return b.String()
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

var dieNow = sync.OnceValue(func() error {
	return driver.RegisterScalarFunction("die_now", 0, func(*driver.FunctionContext, []sqldriver.Value) (sqldriver.Value, error) {
		die()
		return nil, nil
	})
})

func migrateAlone(ctx context.Context, cfg Config, version int64, change func(fs.FS) (fs.FS, error)) (err error) {
	if cfg, err = cfg.complete(); err != nil {
		return err
	}
	if err := dieNow(); err != nil {
		return err
	}
	var db sqldb.Pool
	d := dialectOf(cfg)
	switch d := d.(type) {
	case *sqlite.Database:
		if err := datadir.CreatePrivate(d.Path()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		db = d.Pool("rw", 1)
	case *postgres.Database:
		of, err := d.Config()
		if err != nil {
			return err
		}
		of.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			if n.Message == "die now" {
				die()
			}
		}
		db = d.Pool(of, 1, "")
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	dialect, files := d.Migrations()
	if files, err = change(files); err != nil {
		return err
	}
	p, err := goose.NewProvider(dialect, db, files,
		goose.WithTableName(sqldb.VersionTable), goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err == nil {
		_, err = p.UpTo(ctx, version)
	}
	return err
}

// MigrationText returns the text of a migration for a dialect.
func MigrationText(dialect string, version int64) (string, error) {
	files := sqldb.MigrationDir(dialect)
	names, err := fs.Glob(files, "*.sql")
	for _, name := range names {
		if number, numberErr := goose.NumericComponent(name); numberErr == nil && number == version {
			text, readErr := fs.ReadFile(files, name)
			return string(text), readErr
		}
	}
	return "", errors.Join(err, os.ErrNotExist)
}

// Release is a published release, with the version of the schema that it ended with.
type Release struct {
	Name   string
	Schema int64
}

// Releases returns the published releases, in order.
func Releases() (all []Release) {
	for _, r := range sqldb.Releases {
		all = append(all, Release{r.Name, r.Schema})
	}
	return all
}

// SchemaList migrates an empty database, and lists its schema.
func SchemaList(ctx context.Context, cfg Config) (name, list string, err error) {
	if cfg, err = cfg.complete(); err != nil {
		return "", "", err
	}
	if err := MigrateTo(ctx, cfg, Versions()[len(Versions())-1]); err != nil {
		return "", "", err
	}
	var db sqldb.Pool
	d := dialectOf(cfg)
	switch d := d.(type) {
	case *sqlite.Database:
		db = d.Pool("rw", 1)
	case *postgres.Database:
		of, err := d.Config()
		if err != nil {
			return "", "", err
		}
		db = d.Pool(of, 1, "")
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	objects, err := d.SchemaOf(ctx, sqldb.Statements{Run: db, Dialect: d}, nil)
	var b strings.Builder
	for _, o := range objects {
		b.WriteString(o.Line() + "\n")
	}
	return d.Name(), b.String(), err
}

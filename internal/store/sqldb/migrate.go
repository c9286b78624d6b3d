package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/migrations"
)

// VersionTable is the table in which goose records the applied migrations. The name differs from goose's default,
// because another program in the same database may also use goose.
const VersionTable = "keyserver_schema"

// RestoringSuffix ends the name of a database that is not complete yet: the file of an embedded database, or the
// version table of PostgreSQL. No program accepts a database with this suffix as a database of a key server.
const RestoringSuffix = "restoring"

// RestoringTable is the name of VersionTable in a database that is not complete yet.
const RestoringTable = VersionTable + "_" + RestoringSuffix

// MigrationDir returns the migrations of a kind of database.
func MigrationDir(name string) fs.FS {
	dir, err := fs.Sub(migrations.Files, name)
	if err != nil {
		panic(err) // name is not a valid path
	}
	return dir
}

// Migrate updates the schema of the database to the version of this program. It does not change a newer database that
// this program can work with. It rejects a database of another program, and a database that is too new, before it
// changes anything. It returns the version information of the database after the migration, and the version of this
// program.
func Migrate(ctx context.Context, d Dialect, db Pool, log *slog.Logger) (is VersionInfo, target int64, err error) {
	unlock, err := d.LockMigrations(ctx, db)
	if err != nil {
		return is, 0, fmt.Errorf("lock the database for its migration: %w", Translate(d, err))
	}
	defer func() { err = errors.Join(err, unlock()) }()

	provider, err := newProvider(d, db)
	if err != nil {
		return is, 0, err
	}
	target = latest(provider)
	if is, err = ReadVersionInfo(ctx, d, db); err != nil {
		return is, target, err
	}
	if err := is.Refusal(target); err != nil {
		return is, target, err
	}
	if text := is.newerWarning(target); text != "" {
		log.Warn(text)
		return is, target, nil
	}
	if from := is.Version; from < target {
		if err := up(ctx, d, provider, log); err != nil {
			return is, target, fmt.Errorf("migrate the database from version %d to %d: %w", from, target, Translate(d, err))
		}
		log.Info("database migrated", "from", from, "to", target)
		if is, err = ReadVersionInfo(ctx, d, db); err != nil {
			return is, target, err
		}
	}
	return is, target, is.recordRelease(ctx, d, db, target)
}

// Limits of the retries of a migration that conflicts with transactions of running servers.
// The pause doubles after each attempt.
const (
	migrationAttempts = 6
	migrationPause    = 100 * time.Millisecond
)

// up applies the pending migrations. If PostgreSQL aborts a migration in favor of the transaction
// of a running server, up retries. Each migration is one transaction, so the next attempt
// begins with the aborted migration. After the last attempt, or if ctx ends in a pause, up
// returns the error of the database.
func up(ctx context.Context, d Dialect, provider *goose.Provider, log *slog.Logger) error {
	pause := migrationPause
	for attempt := 1; ; attempt++ {
		_, err := provider.Up(ctx)
		if err == nil || !d.LostToAnother(err) || attempt == migrationAttempts {
			return err
		}
		log.Warn("a migration was aborted in favor of another transaction and is tried again", "attempt", attempt, "error", DriverText(err))
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return err
		}
	}
}

// checkVersion rejects an older database, and a newer database that this program cannot work with.
func checkVersion(ctx context.Context, d Dialect, db Pool) (is VersionInfo, target int64, err error) {
	provider, err := newProvider(d, db)
	if err != nil {
		return is, 0, err
	}
	target = latest(provider)
	if is, err = ReadVersionInfo(ctx, d, db); err != nil {
		return is, target, err
	}
	if is.Version < target {
		return is, target, Refuse(ErrOlderVersion,
			"the database has version %d, but this program needs version %d; start the server once to migrate it", is.Version, target)
	}
	return is, target, is.Refusal(target)
}

func newProvider(d Dialect, db Pool) (*goose.Provider, error) {
	kind, files := d.Migrations()
	p, err := goose.NewProvider(kind, db, files,
		goose.WithTableName(d.VersionTable()), goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the embedded migrations: %w", err)
	}
	return p, nil
}

func latest(p *goose.Provider) int64 {
	sources := p.ListSources()
	return sources[len(sources)-1].Version
}

// LatestFile returns the highest number among the files; numbers may be missing.
func LatestFile(migrations fs.FS) (int64, error) {
	names, err := fs.Glob(migrations, "*.sql")
	if err != nil {
		return 0, err
	}
	var latest int64
	for _, name := range names {
		number, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("read the embedded migrations: %w", err)
		}
		latest = max(latest, number)
	}
	return latest, nil
}

// schemaVersion returns 0 for an empty database. It rejects a database that has only tables of other programs.
func schemaVersion(ctx context.Context, d Dialect, db Pool) (int64, error) {
	all, named, err := d.Tables(ctx, db, VersionTable)
	switch {
	case err != nil:
		return 0, fmt.Errorf("inspect the database: %w", Translate(d, err))
	case all == 0:
		return 0, nil
	case named == 0:
		if _, half, err := d.Tables(ctx, db, RestoringTable); err == nil && half > 0 {
			return 0, Refuse(ErrUnusable, "a restore or move into the database is incomplete: it was interrupted or still runs; run it again, or name another database")
		}
		return 0, Refuse(ErrForeign, "the database has tables of another program; give the key server its own database or schema")
	}
	var version int64
	err = Statements{Run: db, Dialect: d}.Row(ctx, `SELECT max(version_id) FROM `+VersionTable, nil, &version)
	if err != nil {
		return 0, fmt.Errorf("read the version of the database: %w", err)
	}
	return version, nil
}

// LatestSchema returns the version of the schema after all migrations of this program.
func LatestSchema(d Dialect) (int64, error) {
	_, files := d.Migrations()
	return LatestFile(files)
}

// MigrateUpTo applies the migrations up to a version.
func MigrateUpTo(ctx context.Context, d Dialect, db Pool, version int64) error {
	provider, err := newProvider(d, db)
	if err != nil {
		return err
	}
	if _, err := provider.UpTo(ctx, version); err != nil {
		return fmt.Errorf("create the tables of version %d: %w", version, Translate(d, err))
	}
	return nil
}

// MigrateUp applies the remaining migrations.
func MigrateUp(ctx context.Context, d Dialect, db Pool) error {
	provider, err := newProvider(d, db)
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database to the version of this program: %w", Translate(d, err))
	}
	return nil
}

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/pressly/goose/v3"
	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/replication"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/stmtcache"
)

// DatabaseFile is the name of the database in its directory.
const DatabaseFile = "keyserver.db"

// sqliteReaders is the size of the read pool. SQLite readers neither block the
// writer nor each other.
const sqliteReaders = 8

// Database keeps the state in a directory that one process holds at a time. Its one writing connection is
// the only writer, so no write ever waits for a lock of the database.
type Database struct {
	Dir string
	Log *slog.Logger

	Place datadir.Place // of the open files
	away  atomic.Bool   // the files are known not to be in their place
	// Restoring means that the database does not have the name of a complete one yet.
	Restoring bool
	Moving    bool   // also opens a database that was moved elsewhere
	Beside    string // the name of a file that the caller keeps in the directory of a restore

	// Shipped means that a Log reads the log before it folds it into the database.
	Shipped   bool
	file      *os.File     // of the database, if Shipped
	unshipped atomic.Int64 // how often the log was folded without being read
}

// Path returns the file of the database.
func (d *Database) Path() string {
	if d.Restoring {
		return filepath.Join(d.Dir, RestoringFile)
	}
	return filepath.Join(d.Dir, DatabaseFile)
}

// Open implements sqldb.Dialect.
func (d *Database) Open(ctx context.Context) (sqldb.Pools, error) {
	lock, err := datadir.Lock(d.Dir, d.Log)
	if err != nil {
		return sqldb.Pools{}, err
	}
	p := sqldb.Pools{Held: []io.Closer{lock}}
	if err := d.prepare(ctx); err != nil {
		return sqldb.Pools{}, errors.Join(err, p.Close())
	}
	if err := d.Place.Opened(d.Path()); err != nil {
		return sqldb.Pools{}, errors.Join(err, p.Close())
	}
	d.Place.Needed(d.Path() + "-wal")
	if d.Shipped {
		// This file stays open while SQLite has the database open: closing it would release SQLite's locks.
		if d.file, err = os.Open(d.Path()); err != nil {
			return sqldb.Pools{}, errors.Join(err, p.Close())
		}
		p.Held = append(p.Held, d.file)
	}
	p.Write = d.Pool("rw", 1)
	p.Read = d.Pool("rw", sqliteReaders)
	return p, nil
}

// OpenReadOnly implements sqldb.Dialect.
func (d *Database) OpenReadOnly(context.Context) (sqldb.Pools, error) {
	if _, err := os.Stat(d.Path()); err != nil {
		return sqldb.Pools{}, sqldb.Refuse(sqldb.ErrUnusable, "%s holds no database: %s", d.Dir, datadir.ReasonOf(err))
	}
	if _, err := os.Stat(d.Path() + "-wal"); errors.Is(err, fs.ErrNotExist) {
		// No process has it open. SQLite would create the files of a log anyway, which fails if this user
		// may only read.
		return sqldb.Pools{Read: d.Pool(immutable, 2)}, nil // one more, for the data keys while rows are read
	}
	return sqldb.Pools{Read: d.Pool("ro", 2)}, nil
}

const (
	// immutable opens a file that does not change while it is open.
	immutable = "immutable"
	// hasty opens a file that is deleted unless the operation succeeds. Nothing written to it is durable
	// before it is closed and synced.
	hasty = "hasty"
)

// prepare checks that the database file exists and is ours. It creates the file if there is none.
func (d *Database) prepare(ctx context.Context) error {
	if err := d.stays(); err != nil {
		return err
	}
	_, err := os.Lstat(d.Path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.interrupted(); err != nil {
			return err
		}
		return d.create(ctx)
	case err != nil:
		return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be read: %s", d.Path(), datadir.ReasonOf(err))
	}
	return d.checkHeader(ctx)
}

// checkHeader rejects a file that is not ours, or whose version is too new.
func (d *Database) checkHeader(ctx context.Context) (err error) {
	version, err := datadir.UserVersion(d.Path())
	if err != nil {
		return err
	}
	_, files := d.Migrations()
	target, err := sqldb.LatestFile(files)
	if err != nil {
		return err
	}
	if version <= target {
		return nil // the log may hold a newer version; migrate looks again
	}
	db := d.Pool(immutable, 1)
	defer func() { err = errors.Join(err, db.Close()) }()
	is, err := sqldb.ReadVersionInfo(ctx, d, db)
	if err != nil {
		return err
	}
	is.Version = max(is.Version, version)
	return is.Refusal(target)
}

// create makes the database under another name, complete and folded into one file, and then renames it. If the process
// dies, there is either no database or a complete one. Therefore checkHeader can treat any file that is not a complete
// database as the file of another program.
func (d *Database) create(ctx context.Context) error {
	temporary := &Database{Dir: d.Dir, Log: d.Log}
	name := d.Path() + ".new"
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(name + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be written: %s", d.Dir, datadir.ReasonOf(err))
		}
	}
	// The file is created here, because SQLite would leave its mode to the umask. SQLite gives the same
	// mode to the other files that it creates in the directory.
	if err := datadir.CreatePrivate(name); err != nil {
		return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be written: %s", d.Dir, datadir.ReasonOf(err))
	}
	db := openSQLite(name, "rw", 1, FoldAt)
	_, _, err := sqldb.Migrate(ctx, temporary, db, d.Log)
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	if err := os.Rename(name, d.Path()); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	return datadir.Sync(d.Dir)
}

// Pool returns a pool of connections to the database.
func (d *Database) Pool(mode string, size int) sqldb.Pool {
	if d.Shipped {
		return openSQLite(d.Path(), mode, size, 0)
	}
	return openSQLite(d.Path(), mode, size, FoldAt)
}

// openSQLite opens a file. SQLite folds the log into the file at foldAt pages; 0: never.
func openSQLite(path, mode string, size, foldAt int) sqldb.Pool {
	settings := url.Values{
		"mode": {mode}, // never creates
		// Every commit reaches the disk before it returns. With WAL and NORMAL
		// a commit may be lost when the machine stops.
		"_synchronous":  {"FULL"},
		"_foreign_keys": {"1"},
		// Only a checkpoint during `audit verify` can cause a wait.
		"_busy_timeout": {"5000"},
		"_defensive":    {"1"},
		"_dqs":          {"0"},
		// The log is folded at 16 MB: pages that every commit changes are then copied and synced four
		// times less often.
		"_pragma": {"trusted_schema(0)", "secure_delete(1)", "journal_size_limit(67108864)", "cache_size(-16000)", fmt.Sprintf("wal_autocheckpoint(%d)", foldAt)},
	}
	if runtime.GOOS == "darwin" {
		settings.Add("_pragma", "fullfsync(1)") // fsync alone leaves data in the cache of the disk
	}
	if mode == "rw" {
		settings.Set("_journal_mode", "WAL")
	}
	if mode == hasty {
		settings.Set("mode", "rw")
		settings.Set("_journal_mode", "MEMORY")
		settings.Set("_synchronous", "OFF")
	}
	if mode == immutable {
		settings.Set("mode", "ro")
		settings.Set("immutable", "1")
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: settings.Encode()}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		panic(err) // only for a driver that is not registered
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

// VersionTable implements sqldb.Dialect.
func (d *Database) VersionTable() string { return sqldb.VersionTable }

// Migrations implements sqldb.Dialect.
func (d *Database) Migrations() (goose.Dialect, fs.FS) {
	return goose.DialectSQLite3, sqldb.MigrationDir("sqlite")
}

// LockMigrations has nothing to do: the directory is held.
func (d *Database) LockMigrations(context.Context, sqldb.Pool) (func() error, error) {
	return func() error { return nil }, nil
}

// Tables implements sqldb.Dialect.
func (d *Database) Tables(ctx context.Context, db sqldb.Pool, name string) (all, named int, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(name = $1), 0) FROM sqlite_schema
		WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`, name).Scan(&all, &named)
	if codeOf(err)&0xff == sqlite3.SQLITE_NOTADB {
		return 0, 0, datadir.ForeignFile(d.Path())
	}
	return all, named, err
}

// RunnerOn returns a statement cache, because the driver has none.
func (d *Database) RunnerOn(on stmtcache.Preparer) sqldb.Runner { return stmtcache.On(on) }

// Shared implements sqldb.Dialect.
func (d *Database) Shared() bool { return false }

// Writable takes the lock of a write, and checks how the last write to the audit tables ended: only a
// write shows that a volume is full or read-only.
func (d *Database) Writable(ctx context.Context, db *sqldb.DB) error {
	if err := db.WriteAlone(ctx, func(sqldb.Statements) error { return nil }); err != nil {
		return err
	}
	if err := db.Backlog().Trouble(); err != nil {
		return fault.Temporary(fault.StoreUnavailable, fault.ScopeProcess, sqldb.RetryUnavailable,
			"the database cannot be written; audit rows stay in their journal until it is full; check whether the volume is full or read-only").Because(err)
	}
	return nil
}

// Placeholders uses "?", because the driver looks up a numbered parameter by name.
func (d *Database) Placeholders(rows, columns int) string {
	row := "(" + strings.Repeat("?,", columns-1) + "?)"
	return strings.Repeat(row+",", rows-1) + row
}

// Begin implements sqldb.Dialect.
func (d *Database) Begin() string { return "BEGIN IMMEDIATE" }

// Serialise implements sqldb.Dialect. No other process can write, so there is no wait.
func (d *Database) Serialise(context.Context, sqldb.Statements) (string, error) { return "", nil }

// Evict implements sqldb.Dialect.
func (d *Database) Evict(context.Context, *sqldb.DB) {}

// Announce implements sqldb.Dialect.
func (d *Database) Announce(context.Context, sqldb.Statements) error { return nil }

// Follow implements sqldb.Dialect.
func (d *Database) Follow(context.Context, *sqldb.DB) (*replication.Follower, error) { return nil, nil }

// StatementContext returns a context that cannot end: the driver starts a goroutine for each statement
// whose context can, and a statement on a local file needs no interruption.
func (d *Database) StatementContext(ctx context.Context) context.Context {
	return context.WithoutCancel(ctx)
}

// InPlace checks before each commit whether the open files are still those of the directory. Data written
// to other files would be gone at the next start.
func (d *Database) InPlace() error {
	err := d.Place.Check()
	if away := err != nil; d.away.Swap(away) != away {
		if away {
			d.Log.Error("the data directory was removed or replaced while the key server runs, and nothing is written; stop the key server, restore the directory (from a backup if necessary), and start it again", "error", err)
		} else {
			d.Log.Info("the data directory is in its place again")
		}
	}
	if err == nil {
		return nil
	}
	return fault.Temporary(fault.StoreUnavailable, fault.ScopeProcess, sqldb.RetryUnavailable,
		"the data directory was removed or replaced while the key server runs, so nothing is written; stop the key server and restore the directory").Because(err)
}

// SetKeyMACs implements sqldb.Dialect. A statement takes microseconds, so one for all would not be faster.
func (d *Database) SetKeyMACs(ctx context.Context, in sqldb.Statements, ids, macs [][]byte) error {
	for i, id := range ids {
		if err := in.ExecOne(ctx, `UPDATE stored_keys SET mac = $1 WHERE id = $2`, macs[i], id); err != nil {
			return err
		}
	}
	return nil
}

// SetKeyWraps implements sqldb.Dialect.
func (d *Database) SetKeyWraps(ctx context.Context, in sqldb.Statements, ids, wrapped, macs [][]byte) error {
	for i, id := range ids {
		if err := in.ExecOne(ctx, `UPDATE stored_keys SET wrapped = $1, mac = $2 WHERE id = $3`, wrapped[i], macs[i], id); err != nil {
			return err
		}
	}
	return nil
}

// ClaimRewrap implements sqldb.Dialect. No other process has the database.
func (d *Database) ClaimRewrap(context.Context, *sqldb.DB) (func(), error) { return func() {}, nil }

// vacuumedSize is the size limit in bytes up to which Erase rewrites the database with VACUUM. For this size VACUUM
// takes about a second, in memory, and blocks all writes.
const vacuumedSize = 64 << 20

// Erase rewrites a database of up to vacuumedSize and empties the log. secure_delete has overwritten
// deleted data with zeros. But a row that was moved may have left a copy in an unused part of its
// page, and the log has older versions of pages.
func (d *Database) Erase(ctx context.Context, on *sqldb.DB) (done bool, err error) {
	if err := on.Lock(ctx); err != nil {
		return false, err
	}
	defer on.Unlock()
	if err := d.InPlace(); err != nil {
		return false, err
	}
	d.unshipped.Add(1)
	db := d.Pool("rw", 1)
	defer func() { err = errors.Join(err, db.Close()) }()
	var size int64
	if err := db.QueryRowContext(ctx, `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&size); err != nil {
		return false, sqldb.Translate(d, err)
	}
	settings := []string{`PRAGMA busy_timeout = 100`, `PRAGMA temp_store = MEMORY`} // a long read is not waited for
	if size <= vacuumedSize {
		settings = append(settings, `VACUUM`)
	}
	for _, text := range settings {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return false, sqldb.Translate(d, err)
		}
	}
	var busy, logged, folded int
	err = db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &logged, &folded)
	return err == nil && busy == 0, sqldb.Translate(d, err)
}

// Outdated implements sqldb.Dialect. Only this program sets up the connections.
func (d *Database) Outdated(*sql.Conn) bool { return false }

// Classify implements sqldb.Dialect.
func (d *Database) Classify(err error) sqldb.ErrorClass {
	code := codeOf(err)
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return sqldb.ClassDuplicate
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return sqldb.ClassReference
	}
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY:
		return sqldb.ClassUnavailable
	}
	if errors.Is(err, sql.ErrConnDone) {
		return sqldb.ClassUnavailable
	}
	return sqldb.ClassOther
}

// LostToAnother implements sqldb.Dialect. No other process has the database.
func (d *Database) LostToAnother(error) bool { return false }

// Full implements sqldb.Dialect.
func (d *Database) Full(err error) bool { return codeOf(err)&0xff == sqlite3.SQLITE_FULL }

// codeOf returns the extended result code, 0 for an error that is not SQLite's.
func codeOf(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

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

// sqliteReaders is the number of connections for reads. In SQLite, reads block
// neither writes nor other reads.
const sqliteReaders = 8

// Database stores the state in a directory that one process at a time locks. The process has only one
// connection for writes, so no write waits for a lock of the database.
type Database struct {
	Dir string
	Log *slog.Logger

	Place        datadir.Place // records the open files
	filesMissing atomic.Bool   // the last check found that the files were removed or replaced
	// Restoring means that a restore is not complete yet, so the file has another name (RestoringFile).
	Restoring  bool
	Moving     bool   // opens a database even if it was moved elsewhere
	CallerFile string // the name of another file that may exist in the directory of a restore

	// Shipped means that the database is replicated. Then only a Log copies the write-ahead log into the database file,
	// after it has read the log.
	Shipped   bool
	file      *os.File     // the database file, if Shipped
	unshipped atomic.Int64 // how often the log was copied into the file before a Log had read it
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
	p := sqldb.Pools{Closers: []io.Closer{lock}}
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
		p.Closers = append(p.Closers, d.file)
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
		// Without a log, no process has the database open. In mode "ro", SQLite would still create a log,
		// which fails if this user may only read.
		return sqldb.Pools{Read: d.Pool(immutable, 2)}, nil // the second connection reads data keys during a query
	}
	return sqldb.Pools{Read: d.Pool("ro", 2)}, nil
}

const (
	// immutable opens a file that does not change while it is open.
	immutable = "immutable"
	// nonDurable opens the file of a restore, which is deleted if the restore fails. Writes are durable only
	// after the caller has closed and synced the file.
	nonDurable = "hasty"
)

// prepare creates the database file, or checks that the existing file is a database of this program.
func (d *Database) prepare(ctx context.Context) error {
	if err := d.checkNotMoved(); err != nil {
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

// checkHeader rejects a file of another program, and a database whose version is too new.
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
		return nil // the log may have a newer version; Migrate checks it
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

// create creates the complete database as one file under another name, and then renames it. If the process ends before
// the rename, there is no database. Therefore checkHeader can treat a file that is not a complete database as a file of
// another program.
func (d *Database) create(ctx context.Context) error {
	temporary := &Database{Dir: d.Dir, Log: d.Log}
	name := d.Path() + ".new"
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(name + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sqldb.Refuse(sqldb.ErrUnusable, "%s cannot be written: %s", d.Dir, datadir.ReasonOf(err))
		}
	}
	// Create the file here, because the mode of a file that SQLite creates depends on the umask. SQLite
	// gives the same mode to the other files of the database.
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

// openSQLite opens a database file. SQLite copies the log into the file when it has foldAt pages; 0: never.
func openSQLite(path, mode string, size, foldAt int) sqldb.Pool {
	settings := url.Values{
		"mode": {mode}, // no mode creates a database
		// Every commit reaches the disk before it returns. With WAL and synchronous=NORMAL, a commit may be lost when
		// the machine stops.
		"_synchronous":  {"FULL"},
		"_foreign_keys": {"1"},
		// Only a checkpoint during `audit verify` can cause a wait.
		"_busy_timeout": {"5000"},
		"_defensive":    {"1"},
		"_dqs":          {"0"},
		// The log is copied into the file at 16 MB. That is four times less often than by default, so pages
		// that every commit changes are copied less often.
		"_pragma": {"trusted_schema(0)", "secure_delete(1)", "journal_size_limit(67108864)", "cache_size(-16000)", fmt.Sprintf("wal_autocheckpoint(%d)", foldAt)},
	}
	if runtime.GOOS == "darwin" {
		settings.Add("_pragma", "fullfsync(1)") // fsync alone leaves data in the cache of the disk
	}
	if mode == "rw" {
		settings.Set("_journal_mode", "WAL")
	}
	if mode == nonDurable {
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

// LockMigrations does nothing, because this process has locked the directory.
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

// Writable runs an empty write transaction, and checks the result of the last write to the audit tables.
// Only a real write can show that a volume is full or read-only.
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

// Placeholders uses "?", because numbered parameters are slower: the driver looks them up by name.
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

// StatementContext returns a context without cancellation. The driver starts a goroutine for each statement
// with a context that can be canceled. A statement on a local file needs no cancellation.
func (d *Database) StatementContext(ctx context.Context) context.Context {
	return context.WithoutCancel(ctx)
}

// InPlace checks whether the paths in the directory still name the open files. Data that is written to
// removed files would be missing after the next start.
func (d *Database) InPlace() error {
	err := d.Place.Check()
	if away := err != nil; d.filesMissing.Swap(away) != away {
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

// SetKeyMACs implements sqldb.Dialect. A statement takes microseconds, so one statement for all keys would not be
// faster.
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

// ClaimRewrap implements sqldb.Dialect. No other process uses the database.
func (d *Database) ClaimRewrap(context.Context, *sqldb.DB) (func(), error) { return func() {}, nil }

// vacuumedSize is the maximum size in bytes of a database that Erase rewrites with VACUUM. At this size, VACUUM takes
// about a second and needs memory for a copy. VACUUM blocks all writes.
const vacuumedSize = 64 << 20

// Erase rewrites a database of up to vacuumedSize and empties the log. The setting secure_delete
// overwrites deleted data with zeros. But when SQLite moves a row, a copy may remain in an unused part of
// the page, and the log has older versions of pages.
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
	settings := []string{`PRAGMA busy_timeout = 100`, `PRAGMA temp_store = MEMORY`} // do not wait for a long read
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

// Outdated implements sqldb.Dialect. Only this program changes the settings of connections.
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

// LostToAnother implements sqldb.Dialect. No other process uses the database.
func (d *Database) LostToAnother(error) bool { return false }

// Full implements sqldb.Dialect.
func (d *Database) Full(err error) bool { return codeOf(err)&0xff == sqlite3.SQLITE_FULL }

// codeOf returns SQLite's extended result code of an error, or 0 if the error is not from SQLite.
func codeOf(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

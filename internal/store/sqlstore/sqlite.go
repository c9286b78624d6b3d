package sqlstore

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

// sqlite keeps the state in a directory that one process holds at a time. That
// makes one connection the only writer there is, so that no write ever waits
// for a lock of the database.
type sqlite struct {
	dir string
	log *slog.Logger

	place datadir.Place // of what is open
	away  atomic.Bool   // it was told that it is not in its place
	// restore says that what is made has not got the name of a whole database yet.
	restore bool
	moving  bool   // Config.moving
	beside  string // Config.Beside

	// shipped says that the log is read before it is folded into the database (Log).
	shipped   bool
	file      *os.File     // of the database, where that is so
	unshipped atomic.Int64 // how often it was folded without being read
}

func (d *sqlite) path() string {
	if d.restore {
		return filepath.Join(d.dir, RestoringFile)
	}
	return filepath.Join(d.dir, DatabaseFile)
}

func (d *sqlite) open(ctx context.Context) (pools, error) {
	lock, err := datadir.Lock(d.dir, d.log)
	if err != nil {
		return pools{}, err
	}
	p := pools{held: []io.Closer{lock}}
	if err := d.prepare(ctx); err != nil {
		return pools{}, errors.Join(err, p.close())
	}
	if err := d.place.Opened(d.path()); err != nil {
		return pools{}, errors.Join(err, p.close())
	}
	d.place.Needed(d.path() + "-wal")
	if d.shipped {
		// It stays open for as long as SQLite has the file open, whose locks would go with it.
		if d.file, err = os.Open(d.path()); err != nil {
			return pools{}, errors.Join(err, p.close())
		}
		p.held = append(p.held, d.file)
	}
	p.write = d.pool("rw", 1)
	p.read = d.pool("rw", sqliteReaders)
	return p, nil
}

func (d *sqlite) openReadOnly(context.Context) (pools, error) {
	if _, err := os.Stat(d.path()); err != nil {
		return pools{}, refuse(ErrUnusable, "%s holds no database: %s", d.dir, datadir.ReasonOf(err))
	}
	if _, err := os.Stat(d.path() + "-wal"); errors.Is(err, fs.ErrNotExist) {
		// Nobody has it open. SQLite would make the files of a log all the
		// same, and could not where this user may only read.
		return pools{read: d.pool(immutable, 2)}, nil // one more, for the data keys while rows are read
	}
	return pools{read: d.pool("ro", 2)}, nil
}

const (
	// immutable opens a file that does not change while it is open.
	immutable = "immutable"
	// hasty opens a file that is thrown away unless all goes well. Nothing written to it
	// is durable before it is closed and synced.
	hasty = "hasty"
)

// prepare makes sure that the database file is there and ours.
func (d *sqlite) prepare(ctx context.Context) error {
	if err := d.stays(); err != nil {
		return err
	}
	_, err := os.Lstat(d.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.interrupted(); err != nil {
			return err
		}
		return d.create(ctx)
	case err != nil:
		return refuse(ErrUnusable, "%s cannot be read: %s", d.path(), datadir.ReasonOf(err))
	}
	return d.checkHeader(ctx)
}

// checkHeader refuses a file that is not ours or is from a version that is too new.
func (d *sqlite) checkHeader(ctx context.Context) (err error) {
	version, err := datadir.UserVersion(d.path())
	if err != nil {
		return err
	}
	_, files := d.migrations()
	target, err := latestFile(files)
	if err != nil {
		return err
	}
	if version <= target {
		return nil // the log may hold a newer version still; migrate looks again
	}
	db := d.pool(immutable, 1)
	defer func() { err = errors.Join(err, db.Close()) }()
	is, err := readStanding(ctx, d, db)
	if err != nil {
		return err
	}
	is.version = max(is.version, version)
	return is.refusal(target)
}

// create makes the database under another name, complete and folded into one
// file, and then gives it its own. Whenever the process dies, there is either
// no database or a whole one, which is what lets checkHeader take anything
// else for foreign.
func (d *sqlite) create(ctx context.Context) error {
	temporary := &sqlite{dir: d.dir, log: d.log}
	name := d.path() + ".new"
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(name + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return refuse(ErrUnusable, "%s cannot be written: %s", d.dir, datadir.ReasonOf(err))
		}
	}
	// The file is made here, because SQLite would leave its mode to the umask;
	// the files that SQLite puts beside it take over its mode.
	if err := datadir.CreatePrivate(name); err != nil {
		return refuse(ErrUnusable, "%s cannot be written: %s", d.dir, datadir.ReasonOf(err))
	}
	db := openSQLite(name, "rw", 1, FoldAt)
	_, _, err := migrate(ctx, temporary, db, d.log)
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	if err := os.Rename(name, d.path()); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	return datadir.Sync(d.dir)
}

func (d *sqlite) pool(mode string, size int) pool {
	if d.shipped {
		return openSQLite(d.path(), mode, size, 0)
	}
	return openSQLite(d.path(), mode, size, FoldAt)
}

// openSQLite opens a file, whose log is folded into it at so many pages; 0: it is not.
func openSQLite(path, mode string, size, foldAt int) pool {
	settings := url.Values{
		"mode": {mode}, // never creates
		// Every commit reaches the disk before it returns. With WAL and NORMAL
		// a commit may be lost when the machine stops.
		"_synchronous":  {"FULL"},
		"_foreign_keys": {"1"},
		// Only a checkpoint beside `audit verify` can ever make anybody wait.
		"_busy_timeout": {"5000"},
		"_defensive":    {"1"},
		"_dqs":          {"0"},
		// A log of 16 MB before it is folded in: the pages that every commit
		// touches are then copied, and synced, four times less often.
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

func (d *sqlite) versionTable() string { return versionTable }

func (d *sqlite) migrations() (goose.Dialect, fs.FS) {
	return goose.DialectSQLite3, migrationDir("sqlite")
}

// lockMigrations has nothing to do: the directory is held.
func (d *sqlite) lockMigrations(context.Context, pool) (func() error, error) {
	return func() error { return nil }, nil
}

func (d *sqlite) tables(ctx context.Context, db pool, name string) (all, named int, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(name = $1), 0) FROM sqlite_schema
		WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`, name).Scan(&all, &named)
	if codeOf(err)&0xff == sqlite3.SQLITE_NOTADB {
		return 0, 0, datadir.ForeignFile(d.path())
	}
	return all, named, err
}

// runnerOn keeps statements prepared, because the driver does not.
func (d *sqlite) runnerOn(on stmtcache.Place) runner { return stmtcache.On(on) }

func (d *sqlite) shared() bool { return false }

// writable takes the lock that a write takes, and goes by how the tables were last
// filled: a volume that is full or read-only is only found by writing to it.
func (d *sqlite) writable(ctx context.Context, db *DB) error {
	if err := db.writeAlone(ctx, func(statements) error { return nil }); err != nil {
		return err
	}
	if err := db.Backlog().Trouble(); err != nil {
		return fault.Temporary(fault.StoreUnavailable, fault.ScopeProcess, retryUnavailable,
			"the database cannot be written; audit rows stay in their journal, until it is full: look for room on the volume, and whether it is read-only").Because(err)
	}
	return nil
}

// placeholders are "?": for a numbered parameter the driver looks its name up.
func (d *sqlite) placeholders(rows, columns int) string {
	row := "(" + strings.Repeat("?,", columns-1) + "?)"
	return strings.Repeat(row+",", rows-1) + row
}

func (d *sqlite) begin() string { return "BEGIN IMMEDIATE" }

// No other process can write, so there is nobody to wait for, to tell, or to follow.
func (d *sqlite) serialise(context.Context, statements) (string, error)      { return "", nil }
func (d *sqlite) evict(context.Context, *DB)                                 {}
func (d *sqlite) announce(context.Context, statements) error                 { return nil }
func (d *sqlite) follow(context.Context, *DB) (*replication.Follower, error) { return nil, nil }

// statementContext cannot end: the driver starts a goroutine for each statement
// whose context can, and a local file gives nothing worth interrupting.
func (d *sqlite) statementContext(ctx context.Context) context.Context {
	return context.WithoutCancel(ctx)
}

// inPlace looks before each commit whether the files that are open are still those of
// the directory. What is written to others would be gone at the next start.
func (d *sqlite) inPlace() error {
	err := d.place.Check()
	if away := err != nil; d.away.Swap(away) != away {
		if away {
			d.log.Error("the data directory was removed or replaced under the running service, and nothing is written any more; stop it, put the directory back, from a backup if need be, and start it again", "error", err)
		} else {
			d.log.Info("the data directory is in its place again")
		}
	}
	if err == nil {
		return nil
	}
	return fault.Temporary(fault.StoreUnavailable, fault.ScopeProcess, retryUnavailable,
		"the data directory was removed or replaced under the running service, so that nothing is written; the service has to be stopped and the directory put back").Because(err)
}

// setKeyMACs: a statement costs microseconds, and nothing is to be won.
func (d *sqlite) setKeyMACs(ctx context.Context, in statements, ids, macs [][]byte) error {
	for i, id := range ids {
		if err := in.execOne(ctx, `UPDATE stored_keys SET mac = $1 WHERE id = $2`, macs[i], id); err != nil {
			return err
		}
	}
	return nil
}

func (d *sqlite) setKeyWraps(ctx context.Context, in statements, ids, wrapped, macs [][]byte) error {
	for i, id := range ids {
		if err := in.execOne(ctx, `UPDATE stored_keys SET wrapped = $1, mac = $2 WHERE id = $3`, wrapped[i], macs[i], id); err != nil {
			return err
		}
	}
	return nil
}

// claimRewrap: no other process has the database.
func (d *sqlite) claimRewrap(context.Context, *DB) (func(), error) { return func() {}, nil }

// vacuumedSize is up to how many bytes of database are written anew to erase. It
// takes about a second, in memory, and all that writes waits.
const vacuumedSize = 64 << 20

// erase writes the database anew and empties the log. What was overwritten is zeros
// by secure_delete, but a row that was moved may have left a copy where its page has
// no row now, and the log has the pages as they were.
func (d *sqlite) erase(ctx context.Context, on *DB) (done bool, err error) {
	if err := on.Lock(ctx); err != nil {
		return false, err
	}
	defer on.Unlock()
	if err := d.inPlace(); err != nil {
		return false, err
	}
	d.unshipped.Add(1)
	db := d.pool("rw", 1)
	defer func() { err = errors.Join(err, db.Close()) }()
	var size int64
	if err := db.QueryRowContext(ctx, `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&size); err != nil {
		return false, translate(d, err)
	}
	settings := []string{`PRAGMA busy_timeout = 100`, `PRAGMA temp_store = MEMORY`} // a reader of long is not waited for
	if size <= vacuumedSize {
		settings = append(settings, `VACUUM`)
	}
	for _, text := range settings {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return false, translate(d, err)
		}
	}
	var busy, logged, folded int
	err = db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &logged, &folded)
	return err == nil && busy == 0, translate(d, err)
}

// outdated: each connection is set up by this program alone.
func (d *sqlite) outdated(*sql.Conn) bool { return false }

func (d *sqlite) classify(err error) errorClass {
	code := codeOf(err)
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return classDuplicate
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return classReference
	}
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY:
		return classUnavailable
	}
	if errors.Is(err, sql.ErrConnDone) {
		return classUnavailable
	}
	return classOther
}

// lostToAnother: no other process has the database.
func (d *sqlite) lostToAnother(error) bool { return false }

func (d *sqlite) full(err error) bool { return codeOf(err)&0xff == sqlite3.SQLITE_FULL }

// codeOf answers the extended result code, 0 for an error that is not SQLite's.
func codeOf(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

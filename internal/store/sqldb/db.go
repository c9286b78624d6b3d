package sqldb

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// DB is an open database for packages that use SQL. Its Statements run on the pool for
// reads.
type DB struct {
	*Handle
	Statements
}

// Backlog gives access to rows that are durable in a journal and not yet in their tables.
type Backlog struct {
	// Trouble returns the error of the last attempt to write the rows.
	Trouble func() error
	// Release writes the rows before the database closes.
	Release func() error
}

// Open opens a database. It creates a missing database and migrates an older one. After that, it
// rejects a schema that another program has changed.
func Open(ctx context.Context, d Dialect, o Options) (*DB, error) {
	p, err := d.Open(ctx)
	if err != nil {
		return nil, err
	}
	is, target, err := Migrate(ctx, d, p.Write, o.Logger)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	db := newDB(d, o, p)
	db.target = target
	db.setNewerWarning(is)
	db.writer = newWriter(d, p.Write)
	if err := db.refuseSchema(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// OpenReadOnly opens a database that another process may use at the same time. It migrates nothing. It rejects an older
// version of the database, and a newer version that this program cannot work with.
func OpenReadOnly(ctx context.Context, d Dialect, o Options) (*DB, error) {
	p, err := d.OpenReadOnly(ctx)
	if err != nil {
		return nil, err
	}
	is, target, err := checkVersion(ctx, d, p.Read)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	db := newDB(d, o, p)
	db.target = target
	db.setNewerWarning(is)
	return db, nil
}

// NewRestored returns a database that a restore fills. It checks neither version nor schema,
// and starts no follower.
func NewRestored(d Dialect, o Options, p Pools) *DB {
	db := newDB(d, o, p)
	db.writer = newWriter(d, p.Write)
	return db
}

func newDB(d Dialect, o Options, p Pools) *DB {
	if o.KeptChanges <= 0 {
		o.KeptChanges = defaultKeptChanges
	}
	reading := Statements{Run: d.RunnerOn(p.Read), Dialect: d, macs: &macs{}}
	looking := reading
	if p.Look != nil {
		looking.Run = d.RunnerOn(p.Look)
	}
	none := func() error { return nil }
	h := &Handle{
		opts: o, dialect: d, pools: p, reading: reading, looking: looking, macs: reading.macs,
		inserts: NewInsert(d, `INSERT INTO changes (seq, kind, id, action)`, 4),
		backlog: Backlog{Trouble: none, Release: none},
	}
	return &DB{h, reading}
}

// Attach sets the backlog of the database. It is called before the database is used.
func (db *DB) Attach(b Backlog) { db.backlog = b }

// Follow starts to read the changes of other processes, if the database is shared.
func (db *DB) Follow(ctx context.Context) (err error) {
	db.follower, err = db.dialect.Follow(ctx, db)
	return err
}

// Dialect returns the kind of the database.
func (db *DB) Dialect() Dialect { return db.dialect }

// Pools returns the connections of the database.
func (db *DB) Pools() Pools { return db.pools }

// Options returns the options with which the database was opened.
func (db *DB) Options() Options { return db.opts }

// FreshReads returns statements that run on Pools.Look, so they do not wait for other reads. If Look is nil, they run
// on Pools.Read.
func (db *DB) FreshReads() Statements { return db.looking }

// Backlog returns the backlog that Attach has set.
func (db *DB) Backlog() Backlog { return db.backlog }

// ReadOnly reports whether the database was opened for reading only.
func (db *DB) ReadOnly() bool { return db.writer == nil }

// Lock reserves the connection for writes until Unlock.
func (db *DB) Lock(ctx context.Context) error { return db.writer.lock(ctx) }

// Unlock releases the connection that Lock has reserved.
func (db *DB) Unlock() { db.writer.unlock() }

// RecordReplaced records that the database was restarted, or was replaced by another one. gone means that changes or
// audit rows are missing in the database now.
func (db *DB) RecordReplaced(gone bool) {
	db.replaced.Store(db.opts.Clock().UnixNano())
	if gone {
		db.lost.Add(1)
	}
}

// Notify calls the hooks of OnChange. nil means that changes were missed.
func (db *DB) Notify(changes []keyserver.Change) {
	db.hookMu.Lock()
	defer db.hookMu.Unlock()
	for _, hook := range db.hooks {
		hook(changes)
	}
}

// ExecCommitted runs one statement in its own transaction and returns how many rows it changed. If replicas
// share the database, the statement runs on any connection and does not wait for the lock of Transact.
func (db *DB) ExecCommitted(ctx context.Context, text string, args ...any) (n int64, err error) {
	if db.Shared() {
		return db.Exec(ctx, text, args...)
	}
	err = db.WriteAlone(ctx, func(in Statements) error {
		n, err = in.Exec(ctx, text, args...)
		return err
	})
	return n, err
}

// WriteAlone runs fn in a transaction on the connection for writes. Other replicas may write at the same time.
func (db *DB) WriteAlone(ctx context.Context, fn func(in Statements) error) error {
	if err := db.writer.lock(ctx); err != nil {
		return err
	}
	defer db.writer.unlock()
	return db.writer.transact(ctx, fn)
}

// Transact runs fn in a write transaction and commits it with the changes that fn returns. No two calls overlap, on any
// replica. If the data keys of this process are outdated, Transact reloads them before fn. After the commit it calls
// the hooks (OnChange) with the changes.
func (db *DB) Transact(ctx context.Context, fn func(in Statements) ([]keyserver.Change, error)) error {
	for {
		err := db.transact(ctx, fn)
		switch {
		case errors.Is(err, errRingMoved):
			// Reload may send requests to a remote KMS provider, so it runs outside of the transaction.
			err = db.Handle.macs.key.Load().Reload(ctx)
		case errors.Is(err, ErrLockHeld):
			db.dialect.Evict(ctx, db)
			err = ctx.Err()
		default:
			return err
		}
		if err != nil {
			return err
		}
	}
}

func (db *DB) transact(ctx context.Context, fn func(in Statements) ([]keyserver.Change, error)) error {
	if db.writer == nil {
		return errors.New("the database is open read-only")
	}
	if err := db.writer.lock(ctx); err != nil {
		return err
	}
	defer db.writer.unlock()

	var committed []keyserver.Change
	began := db.opts.Clock()
	err := db.writer.transact(ctx, func(in Statements) error {
		incarnation, err := db.dialect.Serialise(ctx, in)
		if err == nil && db.follower != nil && !db.follower.Knows(incarnation) {
			// Earlier reads of this process may have used another database.
			err = db.follower.MarkReplaced()
		}
		if err != nil {
			return err
		}
		if err := db.followRing(ctx, in); err != nil {
			return err
		}
		in.macs = db.Handle.macs
		changes, err := fn(in)
		if err != nil {
			return err
		}
		if err := in.failure(); err != nil {
			return err
		}
		committed, err = db.storeChanges(ctx, in, changes)
		return err
	})
	if measure := db.measure.Load(); measure != nil {
		(*measure)(db.opts.Clock().Sub(began), err)
	}
	if err != nil || len(committed) == 0 {
		return err
	}
	if db.follower != nil {
		db.follower.Committed(committed)
	} else {
		db.Notify(committed)
	}
	return nil
}

package sqldb

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// DB is an open database for packages that know SQL. Its statements read from the pool of
// readers.
type DB struct {
	*Handle
	Statements
}

// Backlog is the state of rows that are durable and wait to be written to their tables.
type Backlog struct {
	// Trouble returns why the rows could not be written at the last attempt.
	Trouble func() error
	// Release writes the rows before the database closes.
	Release func() error
}

// Open opens a database, creates it if there is none, migrates an older one and rejects a
// changed schema. It leaves a database that it rejects as it was.
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

// OpenReadOnly opens a database that another process may be serving from. It migrates nothing. It rejects an older
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

// NewRestored returns a database that is being restored. It is not checked, and nothing
// follows it.
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

// Follow starts to follow the changes of other processes, if there can be any.
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

// Looking returns statements that do not wait for other reads.
func (db *DB) Looking() Statements { return db.looking }

// Backlog returns the backlog that Attach has set.
func (db *DB) Backlog() Backlog { return db.backlog }

// ReadOnly reports whether the database was opened for reading only.
func (db *DB) ReadOnly() bool { return db.writer == nil }

// Lock takes the connection that writes, until Unlock.
func (db *DB) Lock(ctx context.Context) error { return db.writer.lock(ctx) }

// Unlock returns the connection that Lock has taken.
func (db *DB) Unlock() { db.writer.unlock() }

// RecordReplaced records that the database was started again, or that another one has taken over. The parameter gone
// reports that changes or audit rows are missing in that database.
func (db *DB) RecordReplaced(gone bool) {
	db.replaced.Store(db.opts.Clock().UnixNano())
	if gone {
		db.lost.Add(1)
	}
}

// Notify calls the hooks with changes, nil if some were missed.
func (db *DB) Notify(changes []keyserver.Change) {
	db.hookMu.Lock()
	defer db.hookMu.Unlock()
	for _, hook := range db.hooks {
		hook(changes)
	}
}

// Alone commits one statement and returns how many rows it changed. If replicas share the
// database it runs on any connection, and waits for no other transaction.
func (db *DB) Alone(ctx context.Context, text string, args ...any) (n int64, err error) {
	if db.Shared() {
		return db.Exec(ctx, text, args...)
	}
	err = db.WriteAlone(ctx, func(in Statements) error {
		n, err = in.Exec(ctx, text, args...)
		return err
	})
	return n, err
}

// WriteAlone runs a transaction on the connection that Transact uses.
func (db *DB) WriteAlone(ctx context.Context, fn func(in Statements) error) error {
	if err := db.writer.lock(ctx); err != nil {
		return err
	}
	defer db.writer.unlock()
	return db.writer.transact(ctx, fn)
}

// Transact runs fn in a write transaction and commits it with the changes that fn returns. No two transactions overlap,
// on any replica. It begins with the data keys that the database has. After the commit it calls the hooks (OnChange)
// with the changes.
func (db *DB) Transact(ctx context.Context, fn func(in Statements) ([]keyserver.Change, error)) error {
	for {
		err := db.transact(ctx, fn)
		switch {
		case errors.Is(err, errRingMoved):
			// Outside of the transaction, because it may ask a service far away.
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
			// The reads before this transaction may be from another database.
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

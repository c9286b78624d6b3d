package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/replication"
)

// MaxStaleness is how far behind the database a process may be and still
// answer (contract 4.5).
const MaxStaleness = replication.MaxStaleness

// defaultKeptChanges is how many changes a reader may be behind before it has
// to read the state anew.
const defaultKeptChanges = 100_000

// Options are the settings that a database of either kind has.
type Options struct {
	Clock       func() time.Time
	Logger      *slog.Logger
	KeptChanges int64 // default: 100,000
}

// Handle is an open database as callers see it that know no SQL. It is safe for concurrent
// use.
type Handle struct {
	opts     Options
	dialect  Dialect
	pools    Pools
	reading  Statements
	looking  Statements // for reads that must not wait for other reads
	macs     *macs
	writer   *writer // nil if the database is read-only
	follower *replication.Follower
	inserts  Insert                 // of changes
	target   int64                  // the version of the schema that this program is of
	ahead    atomic.Pointer[string] // that the database is newer; empty where it is not
	lost     atomic.Int64           // how often the database had gone back
	anew     atomic.Int64           // when it was last found to be another one, in Unix nanoseconds
	backlog  Backlog
	closing  sync.Once
	closed   error

	measure atomic.Pointer[func(took time.Duration, err error)] // of write transactions

	hookMu sync.Mutex
	hooks  []func([]keyserver.Change)
}

// Close stops what the store runs, waits for it, and closes the database. No
// call may be in flight. Closing again answers what the first time did.
func (h *Handle) Close() error {
	h.closing.Do(func() { h.closed = h.close() })
	return h.closed
}

func (h *Handle) close() error {
	if h.follower != nil {
		h.follower.Stop()
	}
	err := h.backlog.Release()
	if h.writer != nil {
		err = errors.Join(err, h.writer.close())
	}
	return errors.Join(err, h.pools.Close())
}

// Ping reports whether the database answers. Where it is looked at all the time, it is not
// asked again: strangers ask here.
func (h *Handle) Ping(ctx context.Context) error {
	if h.follower != nil {
		if err := h.follower.Current(ctx); err != nil {
			return Unavailable(err)
		}
		return nil
	}
	var one int
	return h.reading.Row(ctx, `SELECT 1`, nil, &one)
}

// Writable answers nil if the database takes writes, of this program. It writes nothing.
func (h *Handle) Writable(ctx context.Context) error {
	if h.writer == nil {
		return errors.New("the database is open for reading only")
	}
	if h.dialect.Shared() { // others wait for the same connection
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, MaxStaleness)
		defer cancel()
	}
	if err := h.dialect.Writable(ctx, &DB{h, h.reading}); err != nil || !h.dialect.Shared() {
		return err
	}
	return h.look(ctx)
}

// Current answers nil if this process knows the database as it was at most
// MaxStaleness ago: all hooks have had every change up to then. Otherwise it
// looks once, and refuses with NOT_CURRENT if that fails. A process that holds
// a SQLite directory is the only one there is, and always current.
func (h *Handle) Current(ctx context.Context) error {
	if h.follower == nil {
		return nil
	}
	return h.follower.Current(ctx)
}

// Confirmed returns the time at which this process last knew every change. A process that
// holds a SQLite directory knows every change at any time.
func (h *Handle) Confirmed() time.Time {
	if h.follower == nil {
		return h.Now()
	}
	return h.follower.Confirmed()
}

// Now is the time by which Confirmed goes.
func (h *Handle) Now() time.Time { return h.opts.Clock() }

// Connections are those to the database for one use, and how often and for how long
// a transaction has waited for one.
type Connections struct {
	Use         string // "read", "write", or "look"
	Most, InUse int
	Waits       int64
	Waited      time.Duration
}

// Connections answers how the connections are used.
func (h *Handle) Connections() []Connections {
	var all []Connections
	for use, db := range map[string]Pool{"read": h.pools.Read, "write": h.pools.Write, "look": h.pools.Look} {
		if db != nil {
			now := db.Stats()
			all = append(all, Connections{use, now.MaxOpenConnections, now.InUse, now.WaitCount, now.WaitDuration})
		}
	}
	return all
}

// Readers returns the number of connections for reads.
func (h *Handle) Readers() int { return h.pools.Read.Stats().MaxOpenConnections }

// OnTransaction has each write transaction measured, from its begin to the end of its
// commit or rollback. What is told must not block.
func (h *Handle) OnTransaction(measure func(took time.Duration, err error)) {
	h.measure.Store(&measure)
}

// Lost answers how often this process has found that the database had gone back: that
// changes or audit rows which it had seen were gone.
func (h *Handle) Lost() int64 { return h.lost.Load() }

// Anew answers when this process last found that the database was started anew, or another
// one: what failed before says nothing of it.
func (h *Handle) Anew() time.Time { return time.Unix(0, h.anew.Load()) }

// OnChange registers a hook that gets the changes of each commit, of this
// process before Transact returns, and of others as soon as they are seen. A nil
// slice says that changes were missed and anything may be different. A change
// may be delivered twice. Hooks run one at a time and must neither block nor
// call Transact or Current.
func (h *Handle) OnChange(hook func([]keyserver.Change)) {
	h.hookMu.Lock()
	defer h.hookMu.Unlock()
	h.hooks = append(h.hooks, hook)
}

// Pools are the connections to one database, and what has to be given up when
// they are closed.
type Pools struct {
	Write, Read Pool
	Look        Pool // to see whether this process is current; nil if no other process writes
	Held        []io.Closer
}

// Close closes the connections and gives back what is held.
func (p Pools) Close() error {
	var errs []error
	for _, db := range []Pool{p.Look, p.Read, p.Write} { // SQLite folds its log into the database when the last writer closes
		if db == nil {
			continue
		}
		if err := db.Close(); !errors.Is(err, net.ErrClosed) { // a silent connection was cut before
			errs = append(errs, err)
		}
	}
	for _, h := range p.Held {
		errs = append(errs, h.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// Shared reports whether other processes may work on the same database.
func (h *Handle) Shared() bool { return h.dialect.Shared() }

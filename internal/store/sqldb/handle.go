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

// MaxStaleness is how far behind the database a process may be and still serve requests
// (contract 4.5).
const MaxStaleness = replication.MaxStaleness

// defaultKeptChanges is how many changes a reader may be behind before it has to read all
// of the state again.
const defaultKeptChanges = 100_000

// Options are the settings of a database of either kind.
type Options struct {
	Clock       func() time.Time
	Logger      *slog.Logger
	KeptChanges int64 // default: 100,000
}

// Handle is an open database for callers without SQL. It is safe for concurrent use.
type Handle struct {
	opts         Options
	dialect      Dialect
	pools        Pools
	reading      Statements
	looking      Statements // for reads that must not wait for other reads
	macs         *macs
	writer       *writer // nil if the database is read-only
	follower     *replication.Follower
	inserts      Insert                 // of changes
	target       int64                  // the version of the schema of this program
	newerWarning atomic.Pointer[string] // the warning that the database is newer; empty if it is not
	lost         atomic.Int64           // how often changes were found to be missing
	replaced     atomic.Int64           // when another database was last found, in Unix nanoseconds
	backlog      Backlog
	closing      sync.Once
	closed       error

	measure atomic.Pointer[func(took time.Duration, err error)] // of write transactions

	hookMu sync.Mutex
	hooks  []func([]keyserver.Change)
}

// Close stops the background work of the store, waits for it, and closes the database. No
// call may be in flight. Later calls return the result of the first.
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

// Ping reports whether the database responds. If a follower watches the database, Ping
// sends no query: its callers may be unauthenticated.
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

// Writable returns nil if the database accepts writes of this program. It writes nothing.
func (h *Handle) Writable(ctx context.Context) error {
	if h.writer == nil {
		return errors.New("the database is open read-only")
	}
	if h.dialect.Shared() { // other reads use the same connection
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, MaxStaleness)
		defer cancel()
	}
	if err := h.dialect.Writable(ctx, &DB{h, h.reading}); err != nil || !h.dialect.Shared() {
		return err
	}
	return h.look(ctx)
}

// Current returns nil if this process knows the database as it was at most MaxStaleness ago: all hooks have had every
// change up to then. Otherwise it reads the changes once, and returns NOT_CURRENT if that fails. A process with a
// SQLite directory is the only one, and always current.
func (h *Handle) Current(ctx context.Context) error {
	if h.follower == nil {
		return nil
	}
	return h.follower.Current(ctx)
}

// Confirmed returns the time at which this process last knew every change. A process with
// a SQLite directory knows every change at any time.
func (h *Handle) Confirmed() time.Time {
	if h.follower == nil {
		return h.Now()
	}
	return h.follower.Confirmed()
}

// Now returns the time of the clock that Confirmed uses.
func (h *Handle) Now() time.Time { return h.opts.Clock() }

// Connections are the connections to the database for one use, and how often and how long
// transactions have waited for one.
type Connections struct {
	Use         string // "read", "write", or "look"
	Most, InUse int
	Waits       int64
	Waited      time.Duration
}

// Connections returns how the connections are used.
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

// OnTransaction sets a function that gets the duration of each write transaction, from its
// begin to the end of its commit or rollback. The function must not block.
func (h *Handle) OnTransaction(measure func(took time.Duration, err error)) {
	h.measure.Store(&measure)
}

// Lost returns how often this process has found that the database had gone back: changes
// or audit rows that it had seen were missing.
func (h *Handle) Lost() int64 { return h.lost.Load() }

// Replaced returns when this process last found that the database was restarted or replaced. Failures before that time
// say nothing about the new database.
func (h *Handle) Replaced() time.Time { return time.Unix(0, h.replaced.Load()) }

// OnChange registers a hook that gets the changes of each commit: of this process before Transact returns, of others as
// soon as they are seen. A nil slice means that changes were missed, so all cached data may be outdated. A change may
// be delivered twice. Hooks run one at a time and must neither block nor call Transact or Current.
func (h *Handle) OnChange(hook func([]keyserver.Change)) {
	h.hookMu.Lock()
	defer h.hookMu.Unlock()
	h.hooks = append(h.hooks, hook)
}

// Pools are the connections to one database, and the locks and files that are closed after
// them.
type Pools struct {
	Write, Read Pool
	Look        Pool // for checks whether this process is current; nil if no other process writes
	Held        []io.Closer
}

// Close closes the connections, then Held.
func (p Pools) Close() error {
	var errs []error
	for _, db := range []Pool{p.Look, p.Read, p.Write} { // SQLite folds its log into the database when the last writer closes
		if db == nil {
			continue
		}
		if err := db.Close(); !errors.Is(err, net.ErrClosed) { // a silent connection was already cut
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

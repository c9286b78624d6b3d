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

// MaxStaleness is how old the data of a process may be while it serves requests (contract
// 4.5).
const MaxStaleness = replication.MaxStaleness

// defaultKeptChanges is the number of stored changes. A reader that has missed more changes
// must read all objects again.
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
	inserts      Insert                 // INSERT of changes
	target       int64                  // the version of the schema of this program
	newerWarning atomic.Pointer[string] // result of NewerWarning
	lost         atomic.Int64           // how often changes were found to be missing
	replaced     atomic.Int64           // when a restart or replacement was last found, in Unix nanoseconds
	backlog      Backlog
	closing      sync.Once
	closed       error

	measure atomic.Pointer[func(took time.Duration, err error)] // gets the duration and error of each write transaction

	hookMu sync.Mutex
	hooks  []func([]keyserver.Change)
}

// Close stops the background work of the store, waits for it, and closes the database. No
// other call may be in progress. Later calls of Close return the result of the first call.
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

// Ping reports whether the database responds. Unauthenticated clients may cause calls of Ping. So on a shared database,
// it sends a query only if the follower is not current.
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
	if h.dialect.Shared() { // the connection of FreshReads must soon be free again
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, MaxStaleness)
		defer cancel()
	}
	if err := h.dialect.Writable(ctx, &DB{h, h.reading}); err != nil || !h.dialect.Shared() {
		return err
	}
	return h.checkFloor(ctx)
}

// Current returns nil if all hooks have received every change that is older than MaxStaleness. Otherwise it reads the
// changes once, and returns NOT_CURRENT if that fails. A process with an embedded database is always current, because
// no other process can change it.
func (h *Handle) Current(ctx context.Context) error {
	if h.follower == nil {
		return nil
	}
	return h.follower.Current(ctx)
}

// Confirmed returns the time up to which the hooks have received every change. With an
// embedded database, that is the current time.
func (h *Handle) Confirmed() time.Time {
	if h.follower == nil {
		return h.Now()
	}
	return h.follower.Confirmed()
}

// Now returns the time of the clock that Confirmed uses.
func (h *Handle) Now() time.Time { return h.opts.Clock() }

// Connections describes the connection pool for one use. Waits and Waited are how often and
// how long callers have waited for a connection.
type Connections struct {
	Use         string // "read", "write", or "look"
	Most, InUse int
	Waits       int64
	Waited      time.Duration
}

// Connections returns the state of each connection pool.
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

// Lost returns how often this process found that the database lacked changes or audit rows that this process had read
// before.
func (h *Handle) Lost() int64 { return h.lost.Load() }

// Replaced returns when this process last found that the database was restarted or replaced. Failures before that time
// say nothing about the new database.
func (h *Handle) Replaced() time.Time { return time.Unix(0, h.replaced.Load()) }

// OnChange registers a hook that gets the changes of each commit. The hook gets a commit of this process before
// Transact returns, and a commit of another process when this process reads it. A nil slice means that changes were
// missed, so all cached data may be outdated. A change may be delivered twice. Hooks run one at a time and must neither
// block nor call Transact or Current.
func (h *Handle) OnChange(hook func([]keyserver.Change)) {
	h.hookMu.Lock()
	defer h.hookMu.Unlock()
	h.hooks = append(h.hooks, hook)
}

// Pools are the connections to one database, and the locks and files that are closed after
// them.
type Pools struct {
	Write, Read Pool
	Look        Pool // reads that must not wait for other reads; nil if the database is not shared
	Closers     []io.Closer
}

// Close closes the connections, then Closers.
func (p Pools) Close() error {
	var errs []error
	for _, db := range []Pool{p.Look, p.Read, p.Write} { // Write is last: SQLite then copies its log into the database file
		if db == nil {
			continue
		}
		if err := db.Close(); !errors.Is(err, net.ErrClosed) { // the connection did not respond and was closed before
			errs = append(errs, err)
		}
	}
	for _, h := range p.Closers {
		errs = append(errs, h.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// Shared reports whether other processes may work on the same database.
func (h *Handle) Shared() bool { return h.dialect.Shared() }

// Package sqlstore keeps the state of a key server in a database: SQLite in a
// directory of its own, or PostgreSQL, which several replicas may share. There
// is one set of queries; what differs between the two stands in a dialect.
//
// Reads are the same on a Store and inside a write transaction. Writes exist
// only inside Store.Update, which serialises them over all replicas and
// records what they changed in the same transaction, in a sequence whose order
// is the order of the commits.
package sqlstore

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

	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/replication"
)

// MaxStaleness is how far behind the database a process may be and still
// answer (contract 4.5).
const MaxStaleness = replication.MaxStaleness

// defaultKeptChanges is how many changes a reader may be behind before it has
// to read the state anew.
const defaultKeptChanges = 100_000

// Config says where the state is kept. Exactly one of Dir and URL is set.
type Config struct {
	Dir string // SQLite: the database is Dir/keyserver.db
	URL string // PostgreSQL

	Clock       func() time.Time // default: the system's
	Logger      *slog.Logger     // default: discards
	KeptChanges int64            // default: 100,000

	// MaxConnections are those to PostgreSQL, all in all; default: DefaultConnections.
	MaxConnections int

	// Shipped, of SQLite, says that nothing but a Log folds the log into the database.
	// Whoever sets it has to use one.
	Shipped bool

	// Beside, of SQLite and a Restore, is the name of a file that the caller puts into Dir before
	// Finish, and that one that was killed may have left there.
	Beside string

	journal journal.Options         // SQLite: other than the defaults only in tests
	discard func()                  // SQLite: gives up a journal that is refused, and is told so
	moving  bool                    // SQLite: one that was moved elsewhere is opened all the same
	restore bool                    // the database has the names of one that is not whole yet
	copied  *[]keyserver.AuditEntry // SQLite: the database is a copy, whose journal had these rows
}

func (c Config) complete() (Config, error) {
	if (c.Dir == "") == (c.URL == "") {
		return c, errors.New("set either a data directory or a database URL")
	}
	if c.Clock == nil {
		c.Clock = time.Now //nolint:forbidigo // the default of an injected clock
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.KeptChanges <= 0 {
		c.KeptChanges = defaultKeptChanges
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = DefaultConnections
	}
	if c.MaxConnections < MinConnections {
		return c, fmt.Errorf("%d connections to the database are too few; it takes %d", c.MaxConnections, MinConnections)
	}
	return c, nil
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	reads
	looks reads // what must not wait for those who read

	cfg      Config
	dialect  dialect
	pools    pools
	writer   *writer // nil where the store is read-only
	follower *replication.Follower
	inserts  inserts
	claimed  atomic.Bool                            // SQLite: the one chain is taken
	copying  atomic.Bool                            // SQLite: a Snapshot is open
	journal  atomic.Pointer[journaled]              // SQLite: where that chain is written
	tail     atomic.Pointer[[]keyserver.AuditEntry] // read-only: rows that were only in a journal
	target   int64                                  // the version of the schema that this program is of
	ahead    atomic.Pointer[string]                 // that the database is newer; empty where it is not
	lost     atomic.Int64                           // how often the database had gone back
	anew     atomic.Int64                           // when it was last found to be another one, in Unix nanoseconds
	closing  sync.Once
	closed   error

	measure atomic.Pointer[func(took time.Duration, err error)] // of write transactions

	hookMu sync.Mutex
	hooks  []func([]keyserver.Change)
}

// Open opens the database for this process, makes it where there is none and
// brings an older one up to date. One of a newer version stays as it is, where that
// lets this program work with it (Ahead). It refuses with one sentence, having changed
// nothing, a database of something else (ErrForeign), one from a version that is too
// new (ErrNewerVersion), and a directory that another process uses (ErrInUse) or
// that cannot be used (ErrUnusable).
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	d := dialectOf(cfg)
	p, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	is, target, err := migrate(ctx, d, p.write, cfg.Logger)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	s := newStore(cfg, d, p)
	s.target = target
	s.stands(is)
	s.writer = newWriter(d, p.write)
	if err := s.refuseSchema(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := d.recoverTrail(ctx, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.follower, err = d.follow(ctx, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// OpenCopy opens the copy of an embedded database, to make a Snapshot of it. rows are
// those that were durable in the journal beside it, of which it may have some already.
func OpenCopy(ctx context.Context, dir string, rows []keyserver.AuditEntry) (*Store, error) {
	return Open(ctx, Config{Dir: dir, copied: &rows})
}

// OpenReadOnly opens the database beside a process that may be serving from
// it. It migrates nothing and refuses a database of an older version, and of a newer one
// that this program cannot work with.
func OpenReadOnly(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	d := dialectOf(cfg)
	p, err := d.openReadOnly(ctx)
	if err != nil {
		return nil, err
	}
	is, target, err := checkVersion(ctx, d, p.read)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	s := newStore(cfg, d, p)
	s.target = target
	s.stands(is)
	return s, nil
}

func newStore(cfg Config, d dialect, p pools) *Store {
	onRead := statements{run: d.runnerOn(p.read), dialect: d, macs: &macs{}}
	onLook := onRead
	if p.look != nil {
		onLook.run = d.runnerOn(p.look)
	}
	return &Store{
		reads:   reads{onRead},
		looks:   reads{onLook},
		cfg:     cfg,
		dialect: d,
		pools:   p,
		inserts: newInserts(d),
	}
}

// Close stops what the store runs, waits for it, and closes the database. No
// call may be in flight. Closing again answers what the first time did.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closed = s.close() })
	return s.closed
}

func (s *Store) close() error {
	if s.follower != nil {
		s.follower.Stop()
	}
	var err error
	if j := s.journal.Load(); j != nil {
		err = j.Release()
	}
	if s.writer != nil {
		err = errors.Join(err, s.writer.close())
	}
	return errors.Join(err, s.pools.close())
}

// Ping reports whether the database answers. Where it is looked at all the time, it is not
// asked again: strangers ask here.
func (s *Store) Ping(ctx context.Context) error {
	if s.follower != nil {
		if err := s.follower.Current(ctx); err != nil {
			return unavailable(err)
		}
		return nil
	}
	var one int
	return s.row(ctx, `SELECT 1`, nil, &one)
}

// Writable answers nil if the database takes writes, of this program. It writes nothing.
func (s *Store) Writable(ctx context.Context) error {
	if s.writer == nil {
		return errors.New("the database is open for reading only")
	}
	if s.dialect.shared() { // others wait for the same connection
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, MaxStaleness)
		defer cancel()
	}
	if err := s.dialect.writable(ctx, s); err != nil || !s.dialect.shared() {
		return err
	}
	return s.look(ctx)
}

// Current answers nil if this process knows the database as it was at most
// MaxStaleness ago: all hooks have had every change up to then. Otherwise it
// looks once, and refuses with NOT_CURRENT if that fails. A process that holds
// a SQLite directory is the only one there is, and always current.
func (s *Store) Current(ctx context.Context) error {
	if s.follower == nil {
		return nil
	}
	return s.follower.Current(ctx)
}

// Confirmed returns the time at which this process last knew every change. A process that
// holds a SQLite directory knows every change at any time.
func (s *Store) Confirmed() time.Time {
	if s.follower == nil {
		return s.Now()
	}
	return s.follower.Confirmed()
}

// Now is the time by which Confirmed goes.
func (s *Store) Now() time.Time { return s.cfg.Clock() }

// Connections are those to the database for one use, and how often and for how long
// somebody has waited for one.
type Connections struct {
	Use         string // "read", "write", or "look"
	Most, InUse int
	Waits       int64
	Waited      time.Duration
}

// Connections answers how the connections are used.
func (s *Store) Connections() []Connections {
	var all []Connections
	for use, db := range map[string]pool{"read": s.pools.read, "write": s.pools.write, "look": s.pools.look} {
		if db != nil {
			now := db.Stats()
			all = append(all, Connections{use, now.MaxOpenConnections, now.InUse, now.WaitCount, now.WaitDuration})
		}
	}
	return all
}

// Readers returns the number of connections for reads.
func (s *Store) Readers() int { return s.pools.read.Stats().MaxOpenConnections }

// OnTransaction has each write transaction measured, from its begin to the end of its
// commit or rollback. What is told must not block.
func (s *Store) OnTransaction(measure func(took time.Duration, err error)) { s.measure.Store(&measure) }

// Lost answers how often this process has found that the database had gone back: that
// changes or audit rows which it had seen were gone.
func (s *Store) Lost() int64 { return s.lost.Load() }

// Anew answers when this process last found that the database was started anew, or another
// one: what failed before says nothing of it.
func (s *Store) Anew() time.Time { return time.Unix(0, s.anew.Load()) }

// OnChange registers a hook that gets the changes of each commit, of this
// process before Update returns, and of others as soon as they are seen. A nil
// slice says that changes were missed and anything may be different. A change
// may be delivered twice. Hooks run one at a time and must neither block nor
// call Update or Current.
func (s *Store) OnChange(hook func([]keyserver.Change)) {
	s.hookMu.Lock()
	defer s.hookMu.Unlock()
	s.hooks = append(s.hooks, hook)
}

func (s *Store) notify(changes []keyserver.Change) {
	s.hookMu.Lock()
	defer s.hookMu.Unlock()
	for _, hook := range s.hooks {
		hook(changes)
	}
}

// pools are the connections to one database, and what has to be given up when
// they are closed.
type pools struct {
	write, read pool
	look        pool // to see whether this process is current; nil where nobody else writes
	held        []io.Closer
}

func (p pools) close() error {
	var errs []error
	for _, db := range []pool{p.look, p.read, p.write} { // SQLite folds its log into the database when the last writer closes
		if db == nil {
			continue
		}
		if err := db.Close(); !errors.Is(err, net.ErrClosed) { // a silent connection was cut before
			errs = append(errs, err)
		}
	}
	for _, h := range p.held {
		errs = append(errs, h.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/wal"
)

const (
	// shipEvery is the pause between two segments.
	shipEvery = time.Second
	// maxShipBackoff is the maximum pause after failures.
	maxShipBackoff = 15 * time.Second
	// shipTime is the time limit of writing a segment. lastShipTime is the limit of the last segment before the process
	// stops.
	shipTime     = 5 * time.Minute
	lastShipTime = 5 * time.Second
	// foldBytes is the approximate size of FoldAt pages in the log.
	foldBytes = sqlite.FoldAt * 4120
	// maxLogBytes is the maximum size of the write-ahead log. A larger log is copied into the database file before the
	// object store has all of it. A new base is then needed.
	maxLogBytes = 512 << 20
	// A new base is made if the current base is older than maxGeneration. It is also made if the segments of the
	// current base have more than maxBehindBase bytes and are more than maxBehindTimes times as large as the base. A
	// restore reads the base and its segments.
	maxGeneration  = 24 * time.Hour
	maxBehindBase  = 1 << 30
	maxBehindTimes = 2
	// pruneEvery is the interval between searches for bases and segments older than Keep.
	pruneEvery = 10 * time.Minute
	// checkEvery is the interval between checks that the written objects still exist.
	checkEvery = 10 * time.Second
	// behindAfter is the delay of the replica after which Late reports the delay.
	behindAfter = time.Minute
)

// Replicator copies (ships) the changes of an embedded database to an object store while the key server
// runs. Every field is required except Keep: 0 keeps all bases and segments.
type Replicator struct {
	Store *sqlstore.Store
	// Maker describes the key server. It makes no backups here.
	Maker     *Maker
	Place     string
	Keep      time.Duration
	Recipient string
	Logger    *slog.Logger
	// Record writes the audit row for a base.
	Record func(ctx context.Context, outcome keyserver.Outcome, name string) error
	// MaxLogBytes is set only in tests. The default is maxLogBytes.
	MaxLogBytes int64

	log     *sqlite.Log
	place   Place // its Store is nil until it was opened
	current *generation
	making  *making
	pending *sqlite.Committed // commits of current that are not written yet
	tried   time.Time         // when a base was last begun
	discard int64             // without a base, the log is discarded when it has more bytes than this
	foldAt  int64             // number of pages in the log at which it is copied into the file
	folds   int64
	ended   sync.WaitGroup
	waits   time.Duration // pause after a failure
	failing error
	begun   time.Time
	pruned  time.Time
	looked  time.Time
	claimed time.Time

	failures, bases, shipped atomic.Int64
	until                    atomic.Int64 // Unix time in microseconds of the last restore point; 0: none
	size                     atomic.Int64 // size of the log in bytes
	late                     atomic.Pointer[string]
}

// generation is a base of the replica with its segments.
type generation struct {
	name   string
	begun  time.Time
	base   int64 // size of the base in bytes
	number int64 // number of the last segment
	said   []byte
	at     wal.Position
	rows   int64 // number of the last audit row in the segments
	behind int64 // bytes of log in the segments
	until  time.Time
}

// making is a base that is being written in the background.
type making struct {
	cancel context.CancelFunc
	done   chan error
	made   *generation
}

// Run calls Pass repeatedly until ctx ends, and then ships the last changes.
func (r *Replicator) Run(ctx context.Context) {
	r.start()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.end()
			return
		case <-timer.C:
		}
		timer.Reset(r.pause(ctx, r.Pass(ctx)))
	}
}

func (r *Replicator) start() {
	if r.MaxLogBytes == 0 {
		r.MaxLogBytes = maxLogBytes
	}
	r.begun, r.discard, r.foldAt = r.Maker.Clock(), foldBytes, sqlite.FoldAt
}

// end ships the last changes, if that takes at most lastShipTime, and closes the log and the destination.
func (r *Replicator) end() {
	if r.making != nil {
		r.making.cancel()
	}
	if r.current != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastShipTime)
		defer cancel()
		if err := r.ship(ctx); err != nil {
			r.Logger.Error("the last changes are not in --replicate-to", "error", err)
		}
	}
	r.ended.Wait()
	r.drop()
	if r.log != nil {
		_ = r.log.Close() // no data can be lost
	}
	if r.place.Store != nil {
		_ = r.place.Close() // no object is open
	}
}

// pause gets the result of Pass. It logs the first failure and the next success, and returns the time until the next
// call of Pass.
func (r *Replicator) pause(ctx context.Context, err error) time.Duration {
	switch {
	case ctx.Err() != nil:
	case err == nil && r.current == nil: // a base is being made
	case err == nil:
		if r.failing != nil {
			r.Logger.Info("the database is replicated again")
		}
		r.failing, r.waits = nil, 0
	default:
		if r.failing == nil {
			r.Logger.Error("the database is not replicated", "error", err)
		}
		r.failures.Add(1)
		r.failing, r.waits = err, min(max(2*r.waits, shipEvery), maxShipBackoff)
	}
	r.updateLate()
	return max(r.waits, shipEvery)
}

// updateLate updates the result of Late.
func (r *Replicator) updateLate() {
	since := r.begun
	if at := r.until.Load(); at > 0 {
		since = time.UnixMicro(at)
	}
	if r.Maker.Clock().Sub(since) <= behindAfter {
		r.late.Store(nil)
		return
	}
	text := fmt.Sprintf("changes after %s are not in --replicate-to; the log of the key server says why, unless it makes a base now", since.UTC().Format(time.RFC3339))
	r.late.Store(&text)
}

// Late returns a message if the replica is more than behindAfter old, otherwise "".
func (r *Replicator) Late() string {
	if text := r.late.Load(); text != nil {
		return *text
	}
	return ""
}

// Pass ships new commits, and begins a base if one is needed.
func (r *Replicator) Pass(ctx context.Context) (err error) {
	if r.log == nil {
		if r.log, err = r.Store.Log(); err != nil {
			return err
		}
	}
	if err := r.bound(ctx); err != nil {
		return err
	}
	if r.place.Store == nil {
		if r.place, err = OpenPlace(ctx, r.Place, true); err != nil {
			return err
		}
	}
	if err := r.claim(ctx); err != nil {
		return err
	}
	failed := r.finish()
	if failed == nil && r.making == nil && r.due() {
		failed = r.beginBase(ctx)
	}
	if r.current == nil {
		return failed
	}
	return errors.Join(failed, r.follow(ctx))
}

// claim checks, at most once per checkEvery, that the destination belongs to this key server.
func (r *Replicator) claim(ctx context.Context) error {
	now := r.Maker.Clock()
	if since := now.Sub(r.claimed); since >= 0 && since < checkEvery {
		return nil
	}
	if err := r.place.Claim(ctx, r.Maker.System, r.Maker.Key); err != nil {
		return fmt.Errorf("--replicate-to: %w", err)
	}
	r.claimed = now
	return nil
}

// follow ships new commits to the current generation.
func (r *Replicator) follow(ctx context.Context) error {
	if whole, err := r.isThere(ctx); err != nil {
		return err
	} else if !whole {
		r.failures.Add(1)
		r.Logger.Error("objects in --replicate-to are missing: later changes cannot be restored, so a new base is made; "+
			"check whether its volume is mounted, and which program removes objects there", "generation", r.current.name)
		r.forget()
		r.until.Store(0)
		return nil
	}
	err := r.ship(ctx)
	if err == nil && r.making == nil && r.current.at.Frames >= r.foldAt {
		err = r.fold(ctx)
	}
	if errors.Is(err, sqlite.ErrLogMoved) {
		// This happens, for example, after Erase has copied the log into the database file.
		r.Logger.Info("the write-ahead log was checkpointed before it was replicated; a new base is needed", "generation", r.current.name)
		r.forget()
		return nil
	}
	if err == nil {
		r.prune(ctx)
	}
	return err
}

// isThere checks, at most once per checkEvery, whether the base and the last segment still exist. They may be missing
// because a volume is not mounted, or because a rule of the bucket removes old objects.
func (r *Replicator) isThere(ctx context.Context) (bool, error) {
	now := r.Maker.Clock()
	if since := now.Sub(r.looked); since >= 0 && since < checkEvery {
		return true, nil
	}
	names := []string{segment{Generation: r.current.name}.name()}
	if g := r.current; g.number > 0 {
		names = append(names, segment{Generation: g.name, Number: g.number, Until: g.until}.name())
	}
	for _, name := range names {
		from, _, err := r.place.Get(ctx, name)
		if err != nil || from == nil {
			return false, err
		}
		if err := from.Close(); err != nil {
			return false, err
		}
	}
	r.looked = now
	return true, nil
}

// bound limits the size of the log while the destination does not respond.
func (r *Replicator) bound(ctx context.Context) error {
	size, err := r.log.Size()
	if err != nil {
		return err
	}
	r.size.Store(size)
	switch {
	case size > r.MaxLogBytes:
		r.stopBase()
		if r.current != nil || r.pending != nil {
			r.Logger.Error("the write-ahead log is too large to wait longer for --replicate-to: its content is not replicated, and a new base is needed",
				"bytes", size, "most", r.MaxLogBytes)
		}
	case r.current != nil || r.making != nil || size <= r.discard:
		return nil
	}
	r.forget()
	if err := r.log.Discard(ctx); err != nil {
		return err
	}
	// The log does not shrink while another connection reads an older state.
	if size, err = r.log.Size(); err != nil {
		return err
	}
	r.discard = size + foldBytes
	return nil
}

// forget ends the current generation. The next segment needs a new base.
func (r *Replicator) forget() {
	r.drop()
	r.current = nil
}

func (r *Replicator) drop() {
	if r.pending != nil {
		_ = r.pending.Close() // it was only read
	}
	r.pending = nil
}

// Observe registers the metrics of replication.
func (r *Replicator) Observe(to prometheus.Registerer) {
	to.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_replication_last_timestamp_seconds",
			Help: "Time up to which all acknowledged changes are in --replicate-to; 0 if there are none yet.",
		}, func() float64 { return math.Floor(float64(r.until.Load())/1e3) / 1e3 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_replication_log_bytes", Help: "Size of the write-ahead log of the database, which grows while --replicate-to does not respond.",
		}, func() float64 { return float64(r.size.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "keyserver_replication_failures_total", Help: "Failed attempts of this process to write to --replicate-to.",
		}, func() float64 { return float64(r.failures.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "keyserver_replication_bases_total", Help: "Bases that this process has made in --replicate-to.",
		}, func() float64 { return float64(r.bases.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "keyserver_replication_shipped_bytes_total", Help: "Bytes of segments that this process has written to --replicate-to.",
		}, func() float64 { return float64(r.shipped.Load()) }),
	)
}

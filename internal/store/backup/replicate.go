package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
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
	// maxShipBackoff bounds the pause after failures.
	maxShipBackoff = 15 * time.Second
	// shipTime bounds the writing of one segment, and lastShipTime that of the last one at a stop.
	shipTime     = 5 * time.Minute
	lastShipTime = 5 * time.Second
	// foldBytes is about the size of FoldAt pages in the log.
	foldBytes = sqlite.FoldAt * 4120
	// maxLogBytes bounds the log. A larger log is folded without waiting for the place; a new base is
	// then needed.
	maxLogBytes = 512 << 20
	// A new base is made after maxGeneration, or when a restore would read more log after the base
	// than the base itself has.
	maxGeneration  = 24 * time.Hour
	maxBehindBase  = 1 << 30
	maxBehindTimes = 2
	// pruneEvery is the interval between searches for generations older than Keep.
	pruneEvery = 10 * time.Minute
	// thereEvery is the interval between checks that the written objects still exist.
	thereEvery = 10 * time.Second
	// behindAfter is the delay of the replica from which Late reports it.
	behindAfter = time.Minute
)

// Replicator ships the log of an embedded database while it is in use. Every field is required except
// Keep; 0 keeps all.
type Replicator struct {
	Store *sqlstore.Store
	// Maker describes the key server; it makes no backup.
	Maker     *Maker
	Place     string
	Keep      time.Duration
	Recipient string
	Logger    *slog.Logger
	// Record writes the row of the audit log for a base, which is a copy of everything.
	Record func(ctx context.Context, outcome keyserver.Outcome, name string) error
	// MaxLogBytes differs from the default only in tests.
	MaxLogBytes int64

	log     *sqlite.Log
	place   Place // without a Store until it was opened
	current *generation
	making  *making
	pending *sqlite.Committed // of current, and not written yet
	tried   time.Time         // when a base was last begun
	discard int64             // the log is discarded when it has more bytes than this
	foldAt  int64             // pages
	folds   int64
	ended   sync.WaitGroup
	waits   time.Duration // after a failure
	failing error
	begun   time.Time
	pruned  time.Time
	looked  time.Time
	claimed time.Time

	failures, bases, shipped atomic.Int64
	until                    atomic.Int64 // microseconds; 0: not yet
	size                     atomic.Int64 // of the log
	late                     atomic.Pointer[string]
}

// generation is a base and the segments after it.
type generation struct {
	name   string
	begun  time.Time
	base   int64 // bytes
	number int64 // of the last segment
	said   []byte
	at     wal.Position
	rows   int64 // the last shipped row of the audit log
	behind int64 // bytes shipped after the base
	until  time.Time
}

// making is a base that is being made.
type making struct {
	cancel context.CancelFunc
	done   chan error
	made   *generation
}

// Run works until ctx ends, and then ships the rest.
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

// end ships the rest, if that takes at most lastShipTime.
func (r *Replicator) end() {
	if r.making != nil {
		r.making.cancel()
	}
	if r.current != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastShipTime)
		defer cancel()
		if err := r.ship(ctx); err != nil {
			r.Logger.Error("what was written last is not in --replicate-to", "error", err)
		}
	}
	r.ended.Wait()
	r.drop()
	if r.log != nil {
		_ = r.log.Close() // it only folds
	}
	if r.place.Store != nil {
		_ = r.place.Close() // nothing is open in it
	}
}

// pause logs a change between success and failure, and returns the time until the next pass.
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
	r.judge()
	return max(r.waits, shipEvery)
}

// judge updates Late.
func (r *Replicator) judge() {
	since := r.begun
	if at := r.until.Load(); at > 0 {
		since = time.UnixMicro(at)
	}
	if r.Maker.Clock().Sub(since) <= behindAfter {
		r.late.Store(nil)
		return
	}
	text := fmt.Sprintf("what was written after %s is not in --replicate-to; the log says why, unless a base is being made", since.UTC().Format(time.RFC3339))
	r.late.Store(&text)
}

// Late returns a sentence if the replica is far behind, otherwise "".
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

// claim checks every thereEvery whether the place belongs to this key server.
func (r *Replicator) claim(ctx context.Context) error {
	now := r.Maker.Clock()
	if since := now.Sub(r.claimed); since >= 0 && since < thereEvery {
		return nil
	}
	if err := r.place.Claim(ctx, r.Maker.System, r.Maker.Key); err != nil {
		return fmt.Errorf("--replicate-to: %w", err)
	}
	r.claimed = now
	return nil
}

// follow ships the commits after the base.
func (r *Replicator) follow(ctx context.Context) error {
	if whole, err := r.isThere(ctx); err != nil {
		return err
	} else if !whole {
		r.failures.Add(1)
		r.Logger.Error("what was written to --replicate-to is not there any more: nothing behind it can be restored, and a new base is made; "+
			"see whether its volume is mounted and who removes what is there", "generation", r.current.name)
		r.forget()
		r.until.Store(0)
		return nil
	}
	err := r.ship(ctx)
	if err == nil && r.making == nil && r.current.at.Frames >= r.foldAt {
		err = r.fold(ctx)
	}
	if errors.Is(err, sqlite.ErrLogMoved) {
		// For example, Erase has folded it.
		r.Logger.Info("the log of the database was folded before it was shipped: a new base is needed", "generation", r.current.name)
		r.forget()
		return nil
	}
	if err == nil {
		r.prune(ctx)
	}
	return err
}

// isThere checks every thereEvery whether the base and the last segment still exist: a volume may not
// be mounted any more, or a rule of a bucket may remove old objects.
func (r *Replicator) isThere(ctx context.Context) (bool, error) {
	now := r.Maker.Clock()
	if since := now.Sub(r.looked); since >= 0 && since < thereEvery {
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

// bound keeps the log from growing while the place does not respond.
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
			r.Logger.Error("the log of the database has grown too large to wait for --replicate-to: what it has is not replicated, and a new base is needed",
				"bytes", size, "most", r.MaxLogBytes)
		}
	case r.current != nil || r.making != nil || size <= r.discard:
		return nil
	}
	r.forget()
	if err := r.log.Discard(ctx); err != nil {
		return err
	}
	// An open read of an older state keeps the log as large as it is.
	if size, err = r.log.Size(); err != nil {
		return err
	}
	r.discard = size + foldBytes
	return nil
}

// forget gives up the current generation.
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

// due reports whether a base is to be made.
func (r *Replicator) due() bool {
	now := r.Maker.Clock()
	if r.current == nil {
		return r.tried.IsZero() || now.Sub(r.tried) >= r.waits || now.Before(r.tried)
	}
	age, longest := now.Sub(r.current.begun), maxGeneration
	if r.Keep > 0 {
		longest = min(longest, r.Keep)
	}
	return age >= longest || age < 0 || r.current.behind > max(maxBehindBase, maxBehindTimes*r.current.base)
}

// beginBase makes a base in the background.
func (r *Replicator) beginBase(ctx context.Context) error {
	reader, err := ParseRecipient(r.Recipient)
	if err != nil {
		return err
	}
	r.tried = r.Maker.Clock()
	base, err := r.log.Base(ctx)
	if err != nil {
		return err
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	made := &generation{name: generationName(r.Maker.System, r.tried, id), begun: r.tried, base: base.Size, at: base.At}
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	r.making = &making{cancel: cancel, done: make(chan error, 1), made: made}
	m := r.making
	r.ended.Go(func() {
		defer cancel()
		head := r.head(ctx, made)
		m.done <- func() error {
			// If the place does not respond, no audit row is written.
			if _, _, err := r.place.Get(ctx, head.name()); err != nil {
				return err
			}
			if err := r.Record(ctx, keyserver.Allowed, head.name()); err != nil {
				return err
			}
			_, err := r.place.Save(ctx, head.name(), func(to io.Writer) error {
				return pack(to, reader, r.tried, resting(ctx, r.Maker.Clock, r.Maker.Rest), func(w *writer) error {
					err := w.base(head, base.File)
					made.said = w.said.Sum(nil)
					return err
				})
			})
			if err != nil {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				err = errors.Join(fmt.Errorf("write the base: %w", err), r.Record(ctx, keyserver.Failed, head.name()))
			}
			return err
		}()
	})
	return nil
}

func (r *Replicator) head(ctx context.Context, g *generation) segment {
	kek := r.Maker.KEK(ctx)
	return segment{
		Format: format, MadeBy: r.Maker.Version, System: r.Maker.System, ServerName: r.Maker.ServerName, KEK: KEK{kek.Scheme, kek.Fingerprint},
		Generation: g.name, Number: g.number, To: g.at,
	}
}

func (r *Replicator) stopBase() {
	if r.making == nil {
		return
	}
	r.making.cancel()
	if err := <-r.making.done; err != nil {
		r.Logger.Debug("a base was given up", "error", err)
	}
	r.making = nil
}

// finish switches to a base that is complete.
func (r *Replicator) finish() error {
	if r.making == nil {
		return nil
	}
	select {
	case err := <-r.making.done:
		made := r.making.made
		r.making = nil
		if err != nil {
			return err
		}
		if !r.log.Intact() {
			return errors.New("the log of the database was folded while a base was made; another one is made")
		}
		r.forget()
		r.current = made
		r.bases.Add(1)
		r.Logger.Info("the database is replicated behind a new base", "name", made.name, "bytes", made.base, "took", r.Maker.Clock().Sub(made.begun).String())
	default:
	}
	return nil
}

// ship writes the commits that are not written yet.
func (r *Replicator) ship(ctx context.Context) error {
	if r.pending != nil { // an earlier attempt may have succeeded unnoticed
		if err := r.write(ctx); err != nil {
			return err
		}
	}
	c, err := r.log.Read(ctx, r.current.at)
	if err != nil {
		return err
	}
	r.pending = &c
	return r.write(ctx)
}

// fold folds the log. All of it was shipped except the last commits, which fold writes then.
func (r *Replicator) fold(ctx context.Context) error {
	c, done, err := r.log.Fold(ctx, r.current.at)
	if !done {
		return err
	}
	r.folds++
	r.pending = &c
	return errors.Join(err, r.write(ctx))
}

// write writes the pending data as a segment. It can be repeated until it succeeds: the object is the
// same each time.
func (r *Replicator) write(ctx context.Context) error {
	c, g := r.pending, r.current
	rows := g.rows
	if n := len(c.Rows); n > 0 {
		rows = max(rows, c.Rows[n-1].Seq)
	}
	if g.number > 0 && c.To.Frames == c.From.Frames && rows == g.rows { // nothing was written
		g.at = c.To
		r.written(c.Until)
		return nil
	}
	reader, err := ParseRecipient(r.Recipient)
	if err != nil {
		return err
	}
	head := r.head(ctx, g)
	head.Number, head.Previous, head.From, head.To, head.Header = g.number+1, g.said, c.From, c.To, c.Header.Raw
	// The clock may be set back, but names must stay in order.
	head.Until = c.Until.UTC().Truncate(time.Millisecond)
	if head.Until.Before(g.until) {
		head.Until = g.until
	}
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	r.ended.Go(func() { r.guard(ctx, cancel) })
	var said []byte
	var size counter
	_, err = r.place.Put(ctx, head.name(), func(to io.Writer) error {
		size = counter{to: to}
		return pack(&size, reader, head.Until, func() error { return ctx.Err() }, func(w *writer) error {
			err := w.segment(head, *c)
			said = w.said.Sum(nil)
			return err
		})
	})
	if err == nil && said == nil { // it exists, from an attempt whose result was lost
		size = counter{to: io.Discard}
		err = pack(&size, reader, head.Until, func() error { return ctx.Err() }, func(w *writer) error {
			err := w.segment(head, *c)
			said = w.said.Sum(nil)
			return err
		})
		if err == nil {
			err = r.isOurs(ctx, head.name(), size.n)
		}
	}
	if err != nil {
		return fmt.Errorf("write the segment %s: %w", head.name(), err)
	}
	g.number, g.said, g.at, g.rows, g.until = head.Number, said, c.To, rows, head.Until
	g.behind += (c.To.Frames - c.From.Frames) * c.Header.Page
	r.shipped.Add(size.n)
	r.written(c.Until)
	return nil
}

// isOurs returns an error if the object of a segment has another size than the segment. Nothing can
// follow such an object, so a new base is needed. Its content cannot be decrypted here.
func (r *Replicator) isOurs(ctx context.Context, name string, size int64) error {
	from, is, err := r.place.Get(ctx, name)
	if err != nil || from == nil {
		return err // the next pass looks for it again
	}
	if err := from.Close(); err != nil {
		return err
	}
	if is == size {
		return nil
	}
	r.forget()
	return fmt.Errorf("somebody else has written it, with %d bytes, where %d were to be: a new base is made; let nobody else write there", is, size)
}

// written records the time up to which everything is replicated.
func (r *Replicator) written(until time.Time) {
	r.until.Store(until.UnixMicro())
	r.drop()
}

// guard cancels the writing of a segment if the log grows too large in that time.
func (r *Replicator) guard(ctx context.Context, cancel context.CancelFunc) {
	look := time.NewTicker(shipEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if size, err := r.log.Size(); err == nil && size > r.MaxLogBytes {
				cancel()
				return
			}
		}
	}
}

// prune removes generations that ended before Keep ago, if a later generation with a base has a
// restore point that old.
func (r *Replicator) prune(ctx context.Context) {
	now := r.Maker.Clock()
	if r.Keep == 0 || now.Sub(r.pruned) < pruneEvery && !now.Before(r.pruned) {
		return
	}
	r.pruned = now
	current := r.current.name
	r.ended.Go(func() {
		if err := r.place.pruneReplicas(ctx, r.Maker.System, current, now.Add(-r.Keep), r.Logger); err != nil && ctx.Err() == nil {
			r.failures.Add(1)
			r.Logger.Error("what is older than --replicate-keep cannot be removed", "error", err)
		}
	})
}

// extent is derived from the names of a generation's objects.
type extent struct {
	base        bool
	first, last time.Time
	number      int64
}

// extents lists the generations of a key server. It ignores empty objects.
func (p Place) extents(ctx context.Context, system keyserver.SystemID) (map[string]*extent, error) {
	all := map[string]*extent{}
	err := p.eachSegment(ctx, func(k keptSegment) error {
		if k.system != system || k.size == 0 {
			return nil
		}
		e := all[k.generation]
		if e == nil {
			e = &extent{last: k.begun}
			all[k.generation] = e
		}
		if k.number == 0 {
			e.base = true
			return nil
		}
		if e.first.IsZero() || k.until.Before(e.first) {
			e.first = k.until
		}
		if k.until.After(e.last) {
			e.last = k.until
		}
		e.number = max(e.number, k.number)
		return nil
	})
	return all, err
}

func (p Place) pruneReplicas(ctx context.Context, system keyserver.SystemID, current string, cutoff time.Time, log *slog.Logger) error {
	all, err := p.extents(ctx, system)
	if err != nil {
		return err
	}
	old := map[string]bool{}
	for name, e := range all {
		if name == current || !e.last.Before(cutoff) {
			continue
		}
		for other, o := range all {
			if other != name && o.base && !o.first.IsZero() && !o.first.After(cutoff) && o.last.After(e.last) {
				old[name] = true
			}
		}
	}
	if len(old) == 0 {
		return nil
	}
	// The base is removed first: without it the rest is not taken for something to restore.
	err = p.eachSegment(ctx, func(k keptSegment) error {
		if !old[k.generation] {
			return nil
		}
		return p.Delete(ctx, k.object)
	})
	for name := range old {
		if err == nil {
			log.Info("replica removed", "generation", name)
		}
	}
	return err
}

// Observe registers the metrics of replication.
func (r *Replicator) Observe(to prometheus.Registerer) {
	to.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_replication_last_timestamp_seconds",
			Help: "Up to when everything that was acknowledged is in --replicate-to, 0 where nothing is yet.",
		}, func() float64 { return math.Floor(float64(r.until.Load())/1e3) / 1e3 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_replication_log_bytes", Help: "Size of the log of the database, which grows while --replicate-to does not answer.",
		}, func() float64 { return float64(r.size.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "keyserver_replication_failures_total", Help: "How often this process could not write to --replicate-to.",
		}, func() float64 { return float64(r.failures.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "keyserver_replication_bases_total", Help: "Bases that this process has made in --replicate-to.",
		}, func() float64 { return float64(r.bases.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "keyserver_replication_shipped_bytes_total", Help: "Bytes of segments that this process has written to --replicate-to.",
		}, func() float64 { return float64(r.shipped.Load()) }),
	)
}

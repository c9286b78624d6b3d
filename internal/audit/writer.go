package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Bounds of a Writer.
const (
	defaultQueue = 4096
	defaultBatch = 512
	// queueWait is how long Write waits for room in a full queue.
	queueWait = 100 * time.Millisecond
	// commitTimeout bounds a batch, so that a database that hangs refuses
	// operations rather than hold them.
	commitTimeout = 10 * time.Second
	// unheard is how long a chain is trusted to be held without a look at it. Its
	// connection may have ended meanwhile, with a database that failed over, and would say
	// so to an operation that then is refused.
	unheard    = time.Second
	retryAfter = time.Second
	// maxField bounds each text of a row in bytes. What callers record is far
	// shorter; the bound keeps a caller's mistake out of the trail.
	maxField = 4096
)

// Options set a Writer's bounds; zero fields have defaults.
type Options struct {
	Queue  int // rows that wait for a commit, besides those in one: 4096
	Batch  int // rows in one commit: 512
	Clock  func() time.Time
	Logger *slog.Logger
	// Written is told of rows once they are durable, in their order. It must not
	// block, nor keep the slice.
	Written func(rows []keyserver.AuditEntry)
	// Measured, where there is one, is told of each commit: its rows, how long it took, and
	// its error. It must not block, nor keep the slice.
	Measured func(rows []keyserver.AuditEntry, took time.Duration, err error)
}

func (o Options) complete() Options {
	if o.Queue <= 0 {
		o.Queue = defaultQueue
	}
	if o.Batch <= 0 {
		o.Batch = defaultBatch
	}
	if o.Clock == nil {
		o.Clock = time.Now //nolint:forbidigo // the default of an injected clock
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Written == nil {
		o.Written = func([]keyserver.AuditEntry) {}
	}
	return o
}

// Writer appends rows to one chain. It is safe for concurrent use; rows that
// wait at the same time share one commit. It has no goroutine: one of those who
// wait commits for all.
type Writer struct {
	store   Store
	options Options
	queue   chan *waiter
	leading chan struct{} // has room for the one who commits
	waiters sync.Pool

	closing sync.RWMutex // held for reading while something is put into queue
	closed  bool
	end     sync.Once

	failing atomic.Bool  // whether the last commit did
	failed  atomic.Int64 // when the last commit that failed did, in Unix nanoseconds

	// The rest belongs to the one who commits.
	chain   Chain // nil while none is claimed
	head    Head
	known   bool      // head is what the database has
	heard   time.Time // when the last commit that succeeded began
	batch   []*waiter
	extra   int  // rows of the batch beyond one each
	shared  bool // the last batch had rows of more than one caller
	rows    []keyserver.AuditEntry
	scratch []byte
}

// waiter is one row, or some that belong together, and whoever waits for their
// commit.
type waiter struct {
	entry keyserver.AuditEntry
	more  []keyserver.AuditEntry // behind it
	state atomic.Int32
	done  chan error
}

// The states of a waiter. Whoever moves it away from queued decides.
const (
	queued    int32 = iota
	taken           // the row is in a batch
	abandoned       // nobody waits any more, and the row must not be written
)

// NewWriter claims a chain and starts to write to it. Close ends it.
func NewWriter(ctx context.Context, store Store, options Options) (*Writer, error) {
	options = options.complete()
	w := &Writer{
		store: store, options: options,
		queue:   make(chan *waiter, options.Queue),
		leading: make(chan struct{}, 1),
		waiters: sync.Pool{New: func() any { return &waiter{done: make(chan error, 1)} }},
		batch:   make([]*waiter, 0, options.Batch),
		rows:    make([]keyserver.AuditEntry, 0, options.Batch),
	}
	if err := w.ready(ctx); err != nil {
		return nil, fmt.Errorf("open the audit trail: %w", err)
	}
	return w, nil
}

// Write answers nil once the row is durable. Its time, sequence number and
// place in the chain are set here. Otherwise the operation it records must not
// happen: OVERLOADED where too many rows wait, AUDIT_UNAVAILABLE where the
// commit failed, or the error of ctx. After the last two the row may
// nevertheless be in the trail. Who commits for others does not heed ctx
// meanwhile.
func (w *Writer) Write(ctx context.Context, entry keyserver.AuditEntry) error {
	wait, err := w.begin(ctx, entry)
	if err != nil {
		return err
	}
	return w.durable(ctx, wait)
}

// WriteAll is Write for rows that belong together: one commit has all of them, or
// none.
func (w *Writer) WriteAll(ctx context.Context, entries []keyserver.AuditEntry) error {
	if len(entries) == 0 {
		return nil
	}
	wait, err := w.begin(ctx, entries[0], entries[1:]...)
	if err != nil {
		return err
	}
	return w.durable(ctx, wait)
}

// Begin puts a row on its way and answers at once, with a function that waits
// for it and answers as Write does. Where the last commit failed, Begin waits
// itself, so that what it is asked for does not begin either.
func (w *Writer) Begin(ctx context.Context, entry keyserver.AuditEntry) (durable func() error, err error) {
	if w.failing.Load() {
		return func() error { return nil }, w.Write(ctx, entry)
	}
	wait, err := w.begin(ctx, entry)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- w.durable(ctx, wait) }()
	return func() error { return <-done }, nil
}

func (w *Writer) begin(ctx context.Context, entry keyserver.AuditEntry, more ...keyserver.AuditEntry) (*waiter, error) {
	wait, _ := w.waiters.Get().(*waiter) // the pool makes nothing else
	wait.entry, wait.more = entry, more
	clean(&wait.entry)
	for i := range more {
		clean(&more[i])
	}
	wait.state.Store(queued)
	if err := w.enqueue(ctx, wait); err != nil {
		w.giveBack(wait)
		return nil, err
	}
	return wait, nil
}

// durable waits for the commit of the row, and commits what is queued where
// nobody else does. Nobody may use the waiter later.
func (w *Writer) durable(ctx context.Context, wait *waiter) error {
	for {
		select {
		case err := <-wait.done:
			w.giveBack(wait)
			return err
		case w.leading <- struct{}{}:
			if len(wait.done) > 0 {
				<-w.leading // another one who waits leads
				continue
			}
			w.lead()
		case <-ctx.Done():
			if len(wait.done) > 0 {
				continue // what became of the row is known
			}
			// Somebody still holds the waiter, so it cannot be used again.
			wait.state.CompareAndSwap(queued, abandoned)
			return ctx.Err()
		}
	}
}

func (w *Writer) giveBack(wait *waiter) {
	wait.more = nil
	w.waiters.Put(wait)
}

func (w *Writer) enqueue(ctx context.Context, wait *waiter) error {
	w.closing.RLock()
	defer w.closing.RUnlock()
	if w.closed {
		return unavailable(errors.New("the audit writer is closed"))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case w.queue <- wait:
		return nil
	default:
	}
	room := time.NewTimer(queueWait)
	defer room.Stop()
	for {
		select {
		case w.queue <- wait:
			return nil
		case w.leading <- struct{}{}: // all that are queued may have been given up
			w.lead()
		case <-ctx.Done():
			return ctx.Err()
		case <-room.C:
			return fault.Temporary(fault.Overloaded, fault.ScopeProcess, retryAfter,
				"too many operations wait for their audit row; try again")
		}
	}
}

// Close writes what is queued, refuses what comes later, and gives the chain up.
func (w *Writer) Close() (err error) {
	w.closing.Lock()
	w.closed = true
	w.closing.Unlock()
	w.end.Do(func() {
		for len(w.queue) > 0 {
			w.leading <- struct{}{}
			w.lead()
		}
		w.leading <- struct{}{} // nobody leads any more
		if w.chain != nil {
			err = w.chain.Release()
		}
	})
	return err
}

// errLeft is what the others hear where a commit ended in a panic.
var errLeft = unavailable(errors.New("the commit was left"))

// lead commits a batch of what is queued. The caller has taken the place in
// leading; the next who waits takes it then.
func (w *Writer) lead() {
	err := errLeft
	defer func() {
		w.answer(err)
		<-w.leading
	}()
	if w.shared {
		// Callers that the last commit woke up have not come back yet. Letting
		// them run first is what fills a batch.
		runtime.Gosched()
	}
	w.gather()
	w.shared = len(w.batch) > 1
	if len(w.batch) > 0 {
		err = w.commit()
	}
}

func (w *Writer) gather() {
	for w.gathered() < w.options.Batch {
		select {
		case wait := <-w.queue:
			w.take(wait)
		default:
			return
		}
	}
}

func (w *Writer) take(wait *waiter) {
	if wait.state.CompareAndSwap(queued, taken) {
		w.batch = append(w.batch, wait)
		w.extra += len(wait.more)
	}
}

// gathered is how many rows the batch has.
func (w *Writer) gathered() int { return len(w.batch) + w.extra }

func (w *Writer) answer(err error) {
	for i, wait := range w.batch {
		wait.done <- err // has room for one
		w.batch[i] = nil
	}
	w.batch, w.extra = w.batch[:0], 0
}

// commit writes the batch and answers what its waiters get.
func (w *Writer) commit() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	began := w.options.Clock()
	if w.options.Measured != nil {
		defer func() { w.options.Measured(w.rows, w.options.Clock().Sub(began), err) }()
	}
	w.rows = w.rows[:0]
	if silent := began.Sub(w.heard); silent > unheard || silent < 0 { // or the clock was set back
		w.known = false
	}
	if chain, may := w.chain.(interface{ Outdated() bool }); may && chain.Outdated() {
		w.known = false // it is claimed again on a new connection
	}
	err = w.ready(ctx)
	if err == nil {
		for _, wait := range w.batch {
			w.rows = append(append(w.rows, wait.entry), wait.more...)
		}
		w.known = false
		var head Head
		err = w.chain.Append(ctx, w.head, w.rows, func(first int64) Head {
			head = w.seal(first)
			return head
		})
		w.head = head
		// Without an answer to the commit nobody but the database knows where
		// the chain ends.
		w.known = err == nil
	}
	if err == nil {
		w.heard = began
		w.options.Written(w.rows)
	}
	w.report(err)
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// ready makes sure that a chain is claimed and its head known.
func (w *Writer) ready(ctx context.Context) error {
	if w.known {
		return nil
	}
	if w.chain != nil {
		head, err := w.chain.Head(ctx)
		if err == nil {
			w.head, w.known = head, true
			return nil
		}
		_ = w.chain.Release() // it is lost, whatever this answers
		w.chain = nil
	}
	chain, err := w.store.ClaimChain(ctx)
	if err != nil {
		return err
	}
	head, err := chain.Head(ctx)
	if err != nil {
		return errors.Join(err, chain.Release())
	}
	w.chain, w.head, w.known = chain, head, true
	return nil
}

// seal gives the rows their time, numbers, places and hashes.
func (w *Writer) seal(first int64) Head {
	now := w.options.Clock().Truncate(time.Microsecond).UTC()
	head := w.head
	for i := range w.rows {
		row := &w.rows[i]
		row.Time = now
		row.Seq = first + int64(i)
		row.Chain = head.Chain
		row.Position = head.Position + 1
		row.Previous = head.Hash
		row.Hash, w.scratch = Sum(w.scratch, row)
		head.Position, head.Hash = row.Position, row.Hash
	}
	return head
}

// report logs the first of a run of failures, and its end.
func (w *Writer) report(err error) {
	switch {
	case err != nil && !w.failing.Load():
		w.options.Logger.Error("audit rows cannot be written, operations are refused", "error", err, "cause", errors.Unwrap(err))
	case err == nil && w.failing.Load():
		w.options.Logger.Info("audit rows are written again")
	}
	if err != nil {
		w.failed.Store(w.options.Clock().UnixNano())
	}
	w.failing.Store(err != nil)
}

// Waiting answers how many operations wait in the queue, and how many have room in it.
func (w *Writer) Waiting() (now, most int) { return len(w.queue), cap(w.queue) }

// Failing says whether the last commit failed, and when.
func (w *Writer) Failing() (at time.Time, failing bool) {
	return time.Unix(0, w.failed.Load()), w.failing.Load()
}

func unavailable(cause error) error {
	return fault.Temporary(fault.AuditUnavailable, fault.ScopeProcess, retryAfter,
		"no audit row could be written, so nothing was done; try again").Because(cause)
}

// clean makes every text one that both databases store as it is: one bad byte
// from one caller would otherwise fail the batch of everybody.
func clean(e *keyserver.AuditEntry) {
	cleanText(&e.Operation)
	cleanText(&e.Reason)
	cleanText(&e.Object)
	cleanText(&e.RequestID)
	cleanText(&e.Filename)
	cleanText(&e.Address)
	cleanText(&e.For)
}

func cleanText(s *string) {
	if len(*s) <= maxField && utf8.ValidString(*s) && strings.IndexByte(*s, 0) < 0 {
		return
	}
	t := strings.ReplaceAll(strings.ToValidUTF8((*s)[:min(len(*s), maxField)], "\uFFFD"), "\x00", "\uFFFD")
	for len(t) > maxField { // replacements are longer than what they replace
		_, n := utf8.DecodeLastRuneInString(t)
		t = t[:len(t)-n]
	}
	*s = t
}

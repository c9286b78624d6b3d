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

// Limits of a Writer.
const (
	defaultQueue = 4096
	defaultBatch = 512
	// queueWait is how long Write waits for space in a full queue.
	queueWait = 100 * time.Millisecond
	// commitTimeout is the time limit of a batch. If the database hangs, operations fail instead of waiting forever.
	commitTimeout = 10 * time.Second
	// maxUncheckedAge is the time after the last successful commit during which the writer uses its chain without a
	// check. Later, the connection of the chain may have ended, for example in a failover. Without a check, the next
	// operation would then fail.
	maxUncheckedAge = time.Second
	retryAfter      = time.Second
	// maxField is the maximum length in bytes of each text in a row. Normal texts are much shorter; the limit applies only
	// if the caller has a bug.
	maxField = 4096
)

// Options are the limits of a Writer. Zero fields have defaults.
type Options struct {
	Queue  int // operations that wait for a commit; a separate limit of the same size applies to calls of WriteAll; default 4096
	Batch  int // rows in one commit; default 512
	Clock  func() time.Time
	Logger *slog.Logger
	// Written is called with the rows after each commit, in order. It must not block or keep the slice.
	Written func(rows []keyserver.AuditEntry)
	// Measured is called after each commit with its rows, its duration, and its error. It
	// must not block or keep the slice. It is optional.
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

// Writer appends rows to one chain. It is safe for concurrent use; concurrent calls share one commit. It has no
// goroutine: one of the waiting callers, the leader, commits the rows of all callers.
type Writer struct {
	store   Store
	options Options
	queue   chan *waiter // waiters with one row
	lists   lists
	leading chan struct{} // mutex for commits; the leader has put a value into it
	waiters sync.Pool

	closing sync.RWMutex // held for reading during each send to queue
	closed  bool
	end     sync.Once

	failing atomic.Bool  // the last commit failed
	failed  atomic.Int64 // time of the last failed commit, in Unix nanoseconds

	// Only the leader uses the following fields.
	chain   Chain // nil if no chain is claimed
	head    Head
	known   bool      // head is equal to the end of the chain in the database
	heard   time.Time // start of the last successful commit
	others  others
	batch   []*waiter
	extra   int  // rows of the batch beyond the first row of each waiter
	shared  bool // the last batch had rows of more than one caller
	rows    []keyserver.AuditEntry
	scratch []byte
}

// waiter is one row, or several that are committed together, and the channel for their result.
type waiter struct {
	entry keyserver.AuditEntry
	more  []keyserver.AuditEntry // the rows after entry
	state atomic.Int32
	done  chan error
}

// The states of a waiter. The leader or the waiting caller changes the state from queued to another state, which is
// final.
const (
	queued    int32 = iota
	taken           // the row is in a batch
	abandoned       // the caller stopped waiting, and the row must not be written
)

// NewWriter claims a chain. Close releases it.
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
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return w, nil
}

// Write returns nil once the row is durable. It sets the row's time, sequence number and position in the chain. If
// Write returns an error, the recorded operation must not be executed. The error is OVERLOADED if too many rows wait,
// AUDIT_UNAVAILABLE if the commit failed, or the error of ctx. After AUDIT_UNAVAILABLE or an error of ctx, the row may
// be in the audit log. While Write commits the rows of other callers, it ignores ctx.
func (w *Writer) Write(ctx context.Context, entry keyserver.AuditEntry) error {
	wait, err := w.begin(ctx, entry)
	if err != nil {
		return err
	}
	return w.durable(ctx, wait)
}

// WriteAll is Write for several rows: it commits all of them or none. It ignores the end of ctx. While other processes
// write to the database, it waits longer than Write: after each commit with rows of WriteAll, the next such commit of
// this process waits up to a second (see lists).
func (w *Writer) WriteAll(ctx context.Context, entries []keyserver.AuditEntry) error {
	if len(entries) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	wait, err := w.begin(ctx, entries[0], entries[1:]...)
	if err != nil {
		return err
	}
	return w.durable(ctx, wait)
}

// Begin starts the write of a row and returns immediately. durable waits for the commit and returns the same errors as
// Write. If the last commit failed, Begin waits for the commit, so that no operation starts while the audit log fails.
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
	wait, _ := w.waiters.Get().(*waiter) // the pool creates this type
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

// durable waits for the commit of the row. It commits the queue itself if no other caller does. The caller must not use
// the waiter after the return.
func (w *Writer) durable(ctx context.Context, wait *waiter) error {
	for {
		leading, rest := w.leading, (<-chan struct{})(nil)
		if len(wait.more) > 0 {
			if rest = w.lists.resting(); rest != nil {
				leading = nil // a leader could not commit the list during the rest
			}
		}
		select {
		case err := <-wait.done:
			w.giveBack(wait)
			return err
		case <-rest:
		case leading <- struct{}{}:
			if len(wait.done) > 0 {
				<-w.leading // another waiting caller was the leader
				continue
			}
			w.lead()
		case <-ctx.Done():
			if len(wait.done) > 0 {
				continue // the result of the row is known
			}
			// The leader may still use the waiter, so it is not returned to the pool.
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
	if len(wait.more) > 0 {
		if !w.lists.join(wait, w.options.Queue) {
			return queueFull()
		}
		return nil
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
		case w.leading <- struct{}{}: // queued rows whose callers stopped waiting may fill the queue
			w.lead()
		case <-ctx.Done():
			return ctx.Err()
		case <-room.C:
			return queueFull()
		}
	}
}

// Close writes all queued rows, refuses later ones, and releases the chain.
func (w *Writer) Close() (err error) {
	w.closing.Lock()
	w.closed = true
	w.closing.Unlock()
	w.end.Do(func() {
		w.lists.end()
		for len(w.queue)+w.lists.len() > 0 {
			w.leading <- struct{}{}
			w.lead()
		}
		w.leading <- struct{}{} // no further caller can lead
		if w.chain != nil {
			err = w.chain.Release()
		}
	})
	return err
}

// errLeft is the error for the callers whose rows are in the batch if the commit panics.
var errLeft = unavailable(errors.New("the commit was abandoned"))

// lead commits a batch of queued rows. Before the call, the caller has put a value into leading. lead removes this
// value at the end, so that another caller can lead.
func (w *Writer) lead() {
	err := errLeft
	defer func() {
		w.answer(err)
		<-w.leading
	}()
	if w.shared {
		// The last commit woke up callers that have not returned yet. Gosched lets them run now, so that their next
		// rows can be in this batch.
		runtime.Gosched()
	}
	w.gather()
	w.shared = len(w.batch) > 1
	if len(w.batch) > 0 {
		err = w.commit()
	}
}

// gather adds a list, then single rows, then more lists to the batch, so that neither lists nor single rows wait too
// long.
func (w *Writer) gather() {
	w.takeList()
	for rows := 0; rows < w.options.Batch && len(w.queue) > 0; rows++ {
		w.take(<-w.queue) // only the leader receives
	}
	for w.gathered() < w.options.Batch && w.takeList() {
	}
}

// takeList adds one list to the batch, and reports whether there was one.
func (w *Writer) takeList() bool {
	wait := w.lists.next()
	if wait != nil {
		w.take(wait)
	}
	return wait != nil
}

func (w *Writer) take(wait *waiter) {
	if wait.state.CompareAndSwap(queued, taken) {
		w.batch = append(w.batch, wait)
		w.extra += len(wait.more)
	}
}

func (w *Writer) gathered() int { return len(w.batch) + w.extra }

func (w *Writer) answer(err error) {
	for i, wait := range w.batch {
		wait.done <- err // has room for one
		w.batch[i] = nil
	}
	w.batch, w.extra = w.batch[:0], 0
}

// commit writes the batch and returns the error for all its waiters.
func (w *Writer) commit() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	began := w.options.Clock()
	if w.options.Measured != nil {
		defer func() { w.options.Measured(w.rows, w.options.Clock().Sub(began), err) }()
	}
	w.rows = w.rows[:0]
	if silent := began.Sub(w.heard); silent > maxUncheckedAge || silent < 0 { // or the clock was set back
		w.known = false
	}
	if chain, may := w.chain.(interface{ Outdated() bool }); may && chain.Outdated() {
		w.known = false // ready then claims a chain on a new connection
	}
	err = w.ready(ctx)
	if err == nil {
		for _, wait := range w.batch {
			w.rows = append(append(w.rows, wait.entry), wait.more...)
		}
		w.known = false
		var head Head
		err = w.chain.Append(ctx, w.head, w.rows, func(first int64) Head {
			w.others.number(first, w.options.Clock())
			head = w.seal(first)
			return head
		})
		if rest := w.others.end(len(w.rows), w.extra > 0, w.options.Clock, err); rest > 0 {
			w.lists.begin(rest)
		}
		w.head = head
		// After an error, the rows may have been committed. The next commit reads the end of the chain from the database.
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

// ready claims a chain if there is none, and reads its head if the head is not known.
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
		_ = w.chain.Release() // the claim is already lost, so an error changes nothing
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

// seal sets the time, numbers, positions and hashes of the rows.
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

// report logs the first of consecutive failed commits, and the first successful commit after them.
func (w *Writer) report(err error) {
	switch {
	case err != nil && !w.failing.Load():
		w.options.Logger.Error("audit rows cannot be written; operations are refused", "error", err, "cause", errors.Unwrap(err))
	case err == nil && w.failing.Load():
		w.options.Logger.Info("audit rows are written again")
	}
	if err != nil {
		w.failed.Store(w.options.Clock().UnixNano())
	}
	w.failing.Store(err != nil)
}

// Waiting returns the number of operations in the fuller of the two queues, and the capacity of each.
func (w *Writer) Waiting() (now, most int) { return max(len(w.queue), w.lists.len()), cap(w.queue) }

// Failing reports whether the last commit failed, and returns the time of the last failure.
func (w *Writer) Failing() (at time.Time, failing bool) {
	return time.Unix(0, w.failed.Load()), w.failing.Load()
}

func queueFull() error {
	return fault.Temporary(fault.Overloaded, fault.ScopeProcess, retryAfter, "too many operations wait for their audit row; try again")
}

func unavailable(cause error) error {
	return fault.Temporary(fault.AuditUnavailable, fault.ScopeProcess, retryAfter,
		"no audit row could be written, so nothing was done; try again").Because(cause)
}

// clean changes each text so that SQLite and PostgreSQL store it unchanged. Otherwise, one invalid byte of one caller
// would fail the batch of all callers.
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
	for len(t) > maxField { // replacements are longer than the bytes that they replace
		_, n := utf8.DecodeLastRuneInString(t)
		t = t[:len(t)-n]
	}
	*s = t
}

package auditrows

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// Limits of the delay until rows of the journal are in the tables.
const (
	fillRows  = 1024 // rows of one transaction, which begins before fillEvery ends if so many rows are pending
	fillEvery = time.Second
)

// journaled is the only chain of an embedded database. A row is durable when it is in the journal. A goroutine writes
// the rows of the journal to the tables. Readers of the audit log wait for this goroutine.
type journaled struct {
	trail  *AuditLog
	log    *journal.Journal
	closed func() // removes the journal from the open files in Database.Place
	fill   filler // used by the goroutine, except in appendAtOnce

	mu        sync.Mutex
	end       logPosition // position after the appended rows
	filled    logPosition // position after the rows in the tables
	pending   []keyserver.AuditEntry
	groups    []group       // describe the rows in pending
	wanted    int64         // the goroutine writes at least the rows up to this number
	moved     chan struct{} // closed and replaced after each attempt to fill
	failing   error         // error of the last attempt to fill
	commitErr error         // error of a direct commit, whose rows may or may not be in the tables

	wake    chan struct{}
	stop    chan struct{}
	stopped chan struct{}
	record  []byte // reused by Append

	releasing sync.Once
	released  error
}

// logPosition is a position in the audit log, with its position in the journal.
type logPosition struct {
	head audit.Head
	seq  int64
	at   journal.Position
}

// group describes the rows of one call of Append: their number, and their end in the journal.
type group struct {
	rows int
	end  journal.Position
}

// openJournal creates a journal and starts the goroutine that fills the tables. The tables must
// have all rows of an earlier journal.
func openJournal(ctx context.Context, t *AuditLog, dir string, place *datadir.Place) (*journaled, error) {
	var id journal.ID
	_, _ = rand.Read(id[:]) // never fails
	log, err := journal.Create(dir, id, t.opts.Journal)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, journal.File)
	if err := place.Opened(path); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	j := &journaled{
		trail: t, log: log, closed: func() { place.Closed(path) }, fill: newFiller(t, dir, id),
		moved: make(chan struct{}), wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	if j.filled, err = j.fill.begin(ctx); err != nil {
		j.closed()
		return nil, errors.Join(err, log.Close())
	}
	j.end = j.filled
	go j.run()
	return j, nil
}

// Head implements audit.Chain. It returns an error if a direct commit (appendAtOnce) has failed,
// because the result of that commit is unknown. The caller must then claim the chain again.
func (j *journaled) Head(context.Context) (audit.Head, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end.head, j.commitErr
}

// Append implements audit.Chain.
func (j *journaled) Append(ctx context.Context, after audit.Head, rows []keyserver.AuditEntry, seal func(first int64) audit.Head) error {
	j.mu.Lock()
	end, err := j.end, j.commitErr
	j.mu.Unlock()
	if err != nil {
		return err
	}
	if after != end.head {
		return fmt.Errorf("audit chain %d no longer ends at position %d", end.head.Chain, after.Position)
	}
	if err := j.trail.db.Dialect().InPlace(); err != nil {
		return err
	}
	end.head = seal(end.seq + 1)
	end.seq += int64(len(rows))
	j.record = j.record[:0]
	for i := range rows {
		j.record = audit.AppendRecord(j.record, &rows[i])
	}
	end.at, err = j.append(ctx)
	if errors.Is(err, journal.ErrTooLarge) {
		return j.appendAtOnce(ctx, end, rows)
	}
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.end = end
	j.pending = append(j.pending, rows...)
	j.groups = append(j.groups, group{len(rows), end.at})
	if len(j.pending) >= fillRows && j.wanted <= j.filled.seq {
		j.requestFill(end.seq)
	}
	return nil
}

// append makes the record durable in the journal. If the journal is full, append waits until the rows of the journal
// are in the tables. It fails if these rows cannot be written to the tables.
func (j *journaled) append(ctx context.Context) (journal.Position, error) {
	for {
		j.mu.Lock()
		moved := j.moved
		j.log.Filled(j.filled.at)
		j.mu.Unlock()
		at, err := j.log.Append(j.record)
		if !errors.Is(err, journal.ErrFull) {
			return at, err
		}
		if err := j.await(ctx, moved, j.end.seq); err != nil {
			return at, fmt.Errorf("%w, because the database could not be written: %w", journal.ErrFull, err)
		}
	}
}

// appendAtOnce commits rows directly to the tables, because they are too large for the journal.
func (j *journaled) appendAtOnce(ctx context.Context, end logPosition, rows []keyserver.AuditEntry) error {
	if err := j.flush(ctx); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	end.at = j.filled.at
	if j.commitErr = j.fill.commit(ctx, j.filled, end, rows); j.commitErr != nil {
		return j.commitErr
	}
	j.filled, j.end = end, end
	return nil
}

// flush waits until every row that was appended before the call is in the tables.
func (j *journaled) flush(ctx context.Context) error {
	j.mu.Lock()
	end := j.end.seq
	j.mu.Unlock()
	for {
		j.mu.Lock()
		filled, moved := j.filled.seq, j.moved
		j.mu.Unlock()
		if filled >= end {
			return nil
		}
		if err := j.await(ctx, moved, end); err != nil {
			return err
		}
	}
}

// await requests that the rows up to seq are written to the tables, and returns the error of the next attempt.
func (j *journaled) await(ctx context.Context, moved chan struct{}, seq int64) error {
	j.mu.Lock()
	j.requestFill(seq)
	j.mu.Unlock()
	select {
	case <-moved:
	case <-ctx.Done():
		return ctx.Err()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failing
}

// requestFill requests that the rows up to seq are written to the tables. The caller holds the lock.
func (j *journaled) requestFill(seq int64) {
	j.wanted = max(j.wanted, seq)
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *journaled) run() {
	defer close(j.stopped)
	late := time.NewTicker(fillEvery)
	defer late.Stop()
	for {
		select {
		case <-j.wake:
		case <-late.C:
			j.mu.Lock()
			j.wanted = j.end.seq
			j.mu.Unlock()
		case <-j.stop:
			return
		}
		for j.fillSome() {
		}
	}
}

// fillSome writes some rows to the tables, and reports whether more rows are requested.
func (j *journaled) fillSome() (more bool) {
	j.mu.Lock()
	from, to, rows := j.filled, j.filled, 0
	groups := 0
	for groups < len(j.groups) && (rows == 0 || rows+j.groups[groups].rows <= fillRows) {
		rows += j.groups[groups].rows
		to.at = j.groups[groups].end
		groups++
	}
	batch := j.pending[:rows]
	j.mu.Unlock()
	var err error
	if rows > 0 {
		last := &batch[rows-1]
		to.seq, to.head.Position, to.head.Hash = last.Seq, last.Position, last.Hash
		err = j.fill.commit(context.Background(), from, to, batch)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if (err == nil) != (j.failing == nil) {
		j.report(err)
	}
	if j.failing = err; err == nil {
		j.filled = to
		left := copy(j.pending, j.pending[rows:])
		clear(j.pending[left:])
		j.pending = j.pending[:left]
		j.groups = j.groups[:copy(j.groups, j.groups[groups:])]
	}
	close(j.moved)
	j.moved = make(chan struct{})
	return err == nil && j.filled.seq < min(j.wanted, j.end.seq)
}

// trouble returns the error of the last attempt to fill the tables, or nil.
func (j *journaled) trouble() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failing
}

func (j *journaled) report(err error) {
	if err != nil {
		j.trail.db.Options().Logger.Error("the database cannot be written; audit rows stay in their journal until it is full", "error", err, "cause", errors.Unwrap(err))
		return
	}
	j.trail.db.Options().Logger.Info("audit rows are copied from the journal into the database again")
}

// Release implements audit.Chain. It writes the remaining rows to the tables and deletes the journal. If it cannot
// write the rows, the next start writes them. Closing the store also calls Release.
func (j *journaled) Release() error {
	j.releasing.Do(func() { j.released = j.release() })
	return j.released
}

func (j *journaled) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), sqldb.EndTimeout)
	defer cancel()
	err := j.flush(ctx)
	close(j.stop)
	<-j.stopped
	j.closed()
	err = errors.Join(err, j.log.Close())
	if err == nil {
		err = j.fill.end(ctx, j.filled)
	}
	j.trail.journal.Store(nil)
	j.trail.claimed.Store(false)
	return err
}

// claimChain implements kind. It always claims chain 1. This process has locked the
// directory, so only another claim in this process can conflict.
func (e embedded) claimChain(ctx context.Context) (audit.Chain, error) {
	if !e.claimed.CompareAndSwap(false, true) {
		return nil, errors.New("the audit chain has a writer already")
	}
	// If an earlier Release has failed, its journal still exists.
	err := e.replay(ctx)
	if err != nil {
		e.claimed.Store(false)
		return nil, err
	}
	j, err := openJournal(ctx, e.AuditLog, e.d.Dir, &e.d.Place)
	if err != nil {
		e.claimed.Store(false)
		return nil, err
	}
	e.journal.Store(j)
	return j, nil
}

// rowsAfter returns the durable rows after seq, in their order, or false if some of them are
// no longer in memory.
func (j *journaled) rowsAfter(seq int64) ([]keyserver.AuditEntry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.filled.seq > seq {
		return nil, false
	}
	return slices.Clone(rowsAfter(j.pending, seq)), true
}

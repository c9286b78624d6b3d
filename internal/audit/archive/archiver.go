package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
)

const (
	// Every is how often it is looked whether a segment is full.
	Every = 10 * time.Second
	// maxBackoff bounds how long nothing is tried after failures.
	maxBackoff = 5 * time.Minute
	// lookEvery is how often it is looked whether the archive still has what was archived last.
	lookEvery = time.Hour
	// segmentTime bounds the work on one segment, and leaseTime how long after its begin no other
	// replica takes it over. Two that work on the same one do no harm.
	segmentTime = 10 * time.Minute
	leaseTime   = 2 * time.Minute
	// readPage is how many rows are read at once.
	readPage = 1000
	// rest is between two pages of what is removed, so that others can write.
	rest = 20 * time.Millisecond
)

// leaseName is of the lease that the replica has that archives.
const leaseName = "auditArchive"

// Store is what an Archiver needs of a database.
type Store interface {
	tree.Store
	// AuditExtent answers what of the trail is where.
	AuditExtent(ctx context.Context) (audit.Extent, error)
	// Archived notes that the archive has the rows up to one.
	Archived(ctx context.Context, last int64) error
	// PruneAudit says that the trail begins behind a row, and where its chains stand
	// there. The rows are removed by SweepAudit.
	PruneAudit(ctx context.Context, last int64, heads []audit.Head) error
	// SweepAudit removes some of the rows that are before the first one, in a time for
	// which everybody can wait, and answers whether there are more. It also makes room
	// for rows to come, where that has to be made.
	SweepAudit(ctx context.Context) (more bool, err error)
	// Shared reports whether other replicas may do the same.
	Shared() bool
	Lease(ctx context.Context, name string, now time.Time, lasts time.Duration) (bool, error)
	EndLease(ctx context.Context, name string) error
}

// Config of an Archiver. Every field but URL and Retention is needed.
type Config struct {
	Store     Store
	URL       string // empty: nothing is archived
	Retention time.Duration
	Key       note.Verifier // of the log
	Clock     func() time.Time
	Logger    *slog.Logger
	// MayPrune reports whether the rows up to one are known well enough elsewhere to be
	// removed.
	MayPrune func(ctx context.Context, last int64) (bool, error)
	// Record writes the row of the trail that says which rows are removed.
	Record func(ctx context.Context, rows string) error
	// Alarm is told of an archive that is not as it was written.
	Alarm func(problem string)
}

// Archiver moves rows into an archive, one segment at a time, behind everything else.
type Archiver struct {
	Config

	archive *Archive // nil until it could be opened
	failing atomic.Bool
	waits   time.Duration // after a failure
	looked  time.Time     // that the archive has what was archived last

	lag, first, archived atomic.Int64
}

// New makes an archiver. Run makes it work.
func New(c Config) *Archiver { return &Archiver{Config: c} }

// Run works until ctx ends.
func (a *Archiver) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			if a.archive != nil {
				_ = a.archive.Close() // nothing is open in it
			}
			return
		case <-timer.C:
		}
		more, err := a.pass(ctx)
		timer.Reset(a.pause(ctx, more, err))
	}
}

// pause says what became of a pass, once, and how long to wait for the next.
func (a *Archiver) pause(ctx context.Context, more bool, err error) time.Duration {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		if a.failing.Load() {
			a.Logger.Info("the audit archive works again")
		}
		a.failing.Store(false)
		a.waits = 0
	default:
		if !a.failing.Load() {
			a.Logger.Error("audit rows are not archived; they stay in the database", "error", err)
		}
		if errors.Is(err, ErrDamaged) || errors.Is(err, tree.ErrInconsistent) {
			a.Alarm(err.Error())
		}
		a.failing.Store(true)
		a.waits = min(max(2*a.waits, Every), maxBackoff)
	}
	if more && err == nil {
		return rest
	}
	return max(a.waits, Every)
}

// pass works on one segment, where no other replica does, and answers whether there is
// another one.
func (a *Archiver) pass(ctx context.Context) (more bool, err error) {
	if err := a.measure(ctx); err != nil {
		return false, err
	}
	if a.Store.Shared() {
		mine, err := a.Store.Lease(ctx, leaseName, a.Clock(), leaseTime)
		if err != nil || !mine {
			return false, err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = a.Store.EndLease(ctx, leaseName) // it ends by itself
		}()
	}
	ctx, cancel := context.WithTimeout(ctx, segmentTime)
	defer cancel()
	if err := a.sweep(ctx); err != nil || a.URL == "" {
		return false, err
	}
	if a.archive == nil {
		if a.archive, err = Open(ctx, a.URL); err != nil {
			return false, err
		}
	}
	if err := a.look(ctx); err != nil {
		return false, err
	}
	if more, err = a.seal(ctx); err == nil && !more {
		more, err = a.prune(ctx)
	}
	return more, errors.Join(err, a.measure(ctx))
}

// look finds out, at first and then from time to time, that the archive has what was
// archived last: somebody may have emptied it, or changed the table audit_extent.
func (a *Archiver) look(ctx context.Context) error {
	now := a.Clock()
	if !a.looked.IsZero() && now.Sub(a.looked) < lookEvery {
		return nil
	}
	extent, err := a.Store.AuditExtent(ctx)
	if err == nil {
		err = a.has(ctx, extent.Archived)
	}
	if err == nil {
		a.looked = now
	}
	return err
}

// has refuses an archive without the segment that ends with a row; 0: nothing is archived.
func (a *Archiver) has(ctx context.Context, last int64) error {
	if last == 0 {
		return nil
	}
	if last < 0 || last%Rows != 0 {
		return damaged("row %d is said to be the last one in the archive, and no segment ends with it: somebody changed the table audit_extent", last)
	}
	m, err := a.archive.manifest(ctx, last-Rows+1)
	if err == nil && m == nil {
		err = damaged("the archive has no segment with row %d, which was archived already; give the archive that has it, or copy it there", last)
	}
	return err
}

func (a *Archiver) measure(ctx context.Context) error {
	extent, err := a.Store.AuditExtent(ctx)
	if err != nil {
		return err
	}
	end, err := a.Store.AuditEnd(ctx)
	if err != nil {
		return err
	}
	a.first.Store(extent.First)
	a.lag.Store(max(end-extent.Archived, 0))
	return nil
}

// seal archives the next segment, if the tree has all of it.
func (a *Archiver) seal(ctx context.Context) (more bool, err error) {
	extent, err := a.Store.AuditExtent(ctx)
	if err != nil {
		return false, err
	}
	head, err := a.Store.AuditTree(ctx)
	first := extent.Archived + 1
	if err != nil || head.Size < first+Rows-1 {
		return false, err
	}
	// Whoever gives another archive is told before it has a gap.
	if err := a.has(ctx, extent.Archived); err != nil {
		return false, err
	}
	if err := a.archive.Seal(ctx, a.Store, a.Key, first); err != nil {
		return false, err
	}
	if err := a.Store.Archived(ctx, first+Rows-1); err != nil {
		return false, err
	}
	a.archived.Add(Rows)
	a.Logger.Info("audit rows archived", "first", first, "last", first+Rows-1)
	return true, nil
}

// prune says of the oldest segment that it is to be removed, if it is old enough and the
// archive can be read.
func (a *Archiver) prune(ctx context.Context) (more bool, err error) {
	extent, err := a.Store.AuditExtent(ctx)
	if err != nil {
		return false, err
	}
	first := extent.First
	last := first + Rows - 1
	if a.Retention == 0 || last > extent.Archived {
		return false, nil
	}
	if may, err := a.MayPrune(ctx, last); err != nil || !may {
		return false, err
	}
	rows, err := a.Store.AuditRange(ctx, last-1, last, 1)
	if err != nil {
		return false, err
	}
	if len(rows) != 1 {
		return false, fmt.Errorf("%w: the row %d is missing", tree.ErrInconsistent, last)
	}
	if a.Clock().Sub(rows[0].Time) < a.Retention {
		return false, nil
	}
	heads, err := a.archive.Check(ctx, a.Store, a.Key, first)
	if err != nil {
		return false, err
	}
	if err := a.record(ctx, last); err != nil {
		return false, err
	}
	if err := a.Store.PruneAudit(ctx, last, heads); err != nil {
		return false, err
	}
	a.Logger.Info("audit rows are in the archive only", "first", first, "last", last)
	return true, a.sweep(ctx)
}

// record writes the row that says what is removed, and waits until the tree has it: without
// it whoever verifies takes the rows for taken away.
func (a *Archiver) record(ctx context.Context, last int64) error {
	if err := a.Record(ctx, audit.SegmentText(last)); err != nil {
		return err
	}
	end, err := a.Store.AuditEnd(ctx)
	if err != nil {
		return err
	}
	for {
		head, err := a.Store.AuditTree(ctx)
		if err != nil || head.Size >= end {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the audit tree does not grow: %w", ctx.Err())
		case <-time.After(rest):
		}
	}
}

// sweep removes rows a few at a time, and rests in between.
func (a *Archiver) sweep(ctx context.Context) error {
	for {
		more, err := a.Store.SweepAudit(ctx)
		if err != nil || !more {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rest):
		}
	}
}

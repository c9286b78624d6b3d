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
	// Every is the interval in which the archiver checks whether a segment is full.
	Every = 10 * time.Second
	// maxBackoff is the longest pause after failures.
	maxBackoff = 5 * time.Minute
	// lookEvery is the interval in which the archiver checks that the last archived segment still exists.
	lookEvery = time.Hour
	// segmentTime is the time limit for one segment. The lease of a replica excludes other replicas only for leaseTime.
	// If two replicas then work on the same segment, this does no harm.
	segmentTime = 10 * time.Minute
	leaseTime   = 2 * time.Minute
	// readPage is the number of rows in one read.
	readPage = 1000
	// rest is the pause between two deletions of rows, so that other transactions can write.
	rest = 20 * time.Millisecond
)

const leaseName = "auditArchive"

// Store is the part of a database that an Archiver uses.
type Store interface {
	tree.Store
	// AuditExtent returns which rows are in the database and in the archive.
	AuditExtent(ctx context.Context) (audit.Extent, error)
	// Archived records that the archive has the rows up to last.
	Archived(ctx context.Context, last int64) error
	// PruneAudit marks the rows up to last as removed, and stores the chain heads at that row. SweepAudit deletes the
	// rows.
	PruneAudit(ctx context.Context, last int64, heads []audit.Head) error
	// SweepAudit deletes some of the rows that are marked as removed in a short transaction, and reports whether there
	// are more. If needed, it also prepares storage for new rows.
	SweepAudit(ctx context.Context) (more bool, err error)
	// Shared reports whether other replicas use the same database.
	Shared() bool
	Lease(ctx context.Context, name string, now time.Time, lasts time.Duration) (bool, error)
	EndLease(ctx context.Context, name string) error
}

// Config is the configuration of an Archiver. All fields are required except URL and Retention.
type Config struct {
	Store     Store
	URL       string // empty: do not archive
	Retention time.Duration
	Key       note.Verifier // of the log
	Clock     func() time.Time
	Logger    *slog.Logger
	// MayPrune reports whether the rows up to last may be removed: all configured sinks and witnesses must have them.
	MayPrune func(ctx context.Context, last int64) (bool, error)
	// Record writes the audit row that names the removed rows.
	Record func(ctx context.Context, rows string) error
	// Alarm is called if the content of the archive differs from the written rows.
	Alarm func(problem string)
}

// Archiver copies rows to an archive in segments, and removes old rows from the database. It runs in the background.
type Archiver struct {
	Config

	archive *Archive // nil until it is open
	failing atomic.Bool
	waits   time.Duration // the pause after a failure
	looked  time.Time     // time of the last check of the archive

	lag, first, archived atomic.Int64
}

// New returns an archiver. Run starts the work.
func New(c Config) *Archiver { return &Archiver{Config: c} }

// Run archives and removes rows until ctx ends.
func (a *Archiver) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			if a.archive != nil {
				_ = a.archive.Close() // no object of the archive is open
			}
			return
		case <-timer.C:
		}
		more, err := a.pass(ctx)
		timer.Reset(a.pause(ctx, more, err))
	}
}

// pause logs the first failure and the recovery, and returns the pause before the next pass.
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
			a.Logger.Error("audit rows cannot be archived; they stay in the database", "error", err)
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

// pass archives at most one segment and marks at most one as removed, unless another replica has the lease. It reports
// whether there may be more segments.
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
			_ = a.Store.EndLease(ctx, leaseName) // the lease expires by itself
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

// look checks that the archive has the last archived segment: at the start, and then every lookEvery. An attacker may
// have deleted the objects of the archive or changed the table audit_extent.
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

// has fails if the archive has no segment that ends with the row last. If last is 0, no row was archived.
func (a *Archiver) has(ctx context.Context, last int64) error {
	if last == 0 {
		return nil
	}
	if last < 0 || last%Rows != 0 {
		return damaged("the database says that the archive ends with row %d, but no segment ends with it; the table audit_extent was changed", last)
	}
	m, err := a.archive.manifest(ctx, last-Rows+1)
	if err == nil && m == nil {
		err = damaged("the archive has no segment with row %d, which was archived before; name the archive that has the segment, or copy the segment to this one", last)
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

// seal archives the next segment if the tree contains all its rows.
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
	// If the URL was changed to another archive, the function has fails, because that archive lacks the last segment.
	// So no archive gets a gap.
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

// prune marks the rows of the oldest segment as removed, if they are old enough and can be read from the archive.
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
		return false, fmt.Errorf("%w: row %d is missing", tree.ErrInconsistent, last)
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
	a.Logger.Info("audit rows were removed from the database; the archive has them", "first", first, "last", last)
	return true, a.sweep(ctx)
}

// record writes the audit row that names the removed rows, and waits until the tree contains it. Without that audit
// row, a verification would report the removed rows as missing.
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

// sweep removes rows in small portions, with pauses.
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

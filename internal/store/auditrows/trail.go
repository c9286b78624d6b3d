package auditrows

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Settled waits until every row that this process was told is durable is in the
// tables. Reads do not: their transaction holds the connection that fills them.
func (t *Trail) Settled(ctx context.Context) error {
	if j := t.journal.Load(); j != nil {
		return j.flush(ctx)
	}
	return nil
}

// AuditRows reads the rows that a filter selects, 100 of them unless the filter
// says otherwise, at most 1000. It looks at a bounded number of rows: a page may
// be short, even empty, and still have a Next.
func (t *Trail) AuditRows(ctx context.Context, filter keyserver.AuditFilter) (keyserver.AuditPage, error) {
	if err := t.Settled(ctx); err != nil {
		return keyserver.AuditPage{}, err
	}
	return t.reads.AuditRows(ctx, filter)
}

// KeyUses reads those of keys; one that was never used is not among them.
func (t *Trail) KeyUses(ctx context.Context, keys []keyserver.ID) (map[keyserver.ID]KeyUse, error) {
	if err := t.Settled(ctx); err != nil {
		return nil, err
	}
	return t.reads.KeyUses(ctx, keys)
}

// AuditSnapshot implements audit.Trail. While a process writes, and after one
// that was not stopped, it also has the rows that are only in the journal.
func (t *Trail) AuditSnapshot(ctx context.Context) (audit.Snapshot, error) {
	if !t.db.ReadOnly() {
		if err := t.Settled(ctx); err != nil {
			return audit.Snapshot{}, err
		}
		return t.reads.AuditSnapshot(ctx)
	}
	snapshot, rows, err := t.kind.unfilled(ctx)
	t.tail.Store(&rows)
	return snapshot, err
}

// AuditRange implements audit.Trail.
func (t *Trail) AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	if err := t.Settled(ctx); err != nil {
		return nil, err
	}
	rows, err := t.reads.AuditRange(ctx, after, last, limit)
	if tail := t.tail.Load(); err == nil && tail != nil {
		if n := len(rows); n > 0 {
			after = rows[n-1].Seq
		}
		for _, row := range *tail {
			if len(rows) < limit && row.Seq > after && row.Seq <= last {
				rows = append(rows, row)
			}
		}
	}
	return rows, err
}

// AuditEnd answers the greatest sequence number among the rows, 0 where there are none.
func (t *Trail) AuditEnd(ctx context.Context) (int64, error) {
	if err := t.Settled(ctx); err != nil {
		return 0, err
	}
	end, err := t.reads.AuditEnd(ctx)
	if tail := t.tail.Load(); err == nil && tail != nil && len(*tail) > 0 {
		end = max(end, (*tail)[len(*tail)-1].Seq)
	}
	return end, err
}

// Another process may fill the tables, and use the journal again, while both are
// read.
const (
	unfilledTries = 50
	unfilledPause = 10 * time.Millisecond
)

func (e embedded) unfilled(ctx context.Context) (snapshot audit.Snapshot, rows []keyserver.AuditEntry, err error) {
	for range unfilledTries {
		if snapshot, rows, err = e.unfilledNow(ctx); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(unfilledPause)
	}
	return snapshot, rows, err
}

func (e embedded) unfilledNow(ctx context.Context) (audit.Snapshot, []keyserver.AuditEntry, error) {
	rows, end, err := e.unfilledRows(ctx)
	if err != nil {
		return audit.Snapshot{}, nil, err
	}
	snapshot, err := e.reads.AuditSnapshot(ctx)
	if err != nil || len(rows) == 0 || snapshot.LastSeq >= end.seq {
		return snapshot, nil, err
	}
	snapshot.LastSeq, snapshot.MaxSeq = end.seq, max(snapshot.MaxSeq, end.seq)
	for i := range snapshot.Heads {
		if snapshot.Heads[i].Chain == end.head.Chain {
			snapshot.Heads[i] = end.head
		}
	}
	return snapshot, rows, nil
}

// copyOf is what to look at where a journal does not fit.
const copyOf = "; serve refuses that, too. A copy of an embedded database is keyserver.db, and keyserver.db-wal and audit.journal where they are there"

// unfilledRows reads the rows that are only in the journal, and where the trail ends with
// them. It refuses what replay refuses.
func (e embedded) unfilledRows(ctx context.Context) ([]keyserver.AuditEntry, reached, error) {
	open, id, end, err := journalOf(ctx, e.db.Statements)
	if errors.Is(err, sqldb.ErrNotFound) {
		return nil, end, errNoJournal
	}
	if err != nil {
		return nil, end, err
	}
	there, err := journal.Load(e.d.Dir)
	if errors.Is(err, journal.ErrMissing) && !open {
		return nil, end, nil
	}
	var groups []journal.Group
	switch {
	case err != nil:
	case open:
		groups, err = there.Groups(id, end.at)
	default:
		err = e.needsNone(id, there, end)
	}
	if err != nil {
		return nil, end, sqldb.Refuse(sqldb.ErrUnusable, "%s%s", err, copyOf)
	}
	rows, end, err := follows(nil, end, groups)
	if err != nil {
		err = sqldb.Refuse(sqldb.ErrUnusable, "the audit journal beside the database is not of it: %s%s", err, copyOf)
	}
	return rows, end, err
}

// Behind returns the rows that are durable and behind one, in their order, and false if some
// of them are not in memory any more.
func (t *Trail) Behind(seq int64) ([]keyserver.AuditEntry, bool) {
	var rows []keyserver.AuditEntry
	if j := t.journal.Load(); j != nil {
		var complete bool
		if rows, complete = j.behind(seq); !complete {
			return nil, false
		}
		seq += int64(len(rows))
	}
	if t.opts.Copied != nil {
		if copied := rowsBehind(*t.opts.Copied, seq); copied != nil {
			rows = copied
		}
	}
	return rows, true
}

func rowsBehind(rows []keyserver.AuditEntry, seq int64) []keyserver.AuditEntry {
	if at := slices.IndexFunc(rows, func(row keyserver.AuditEntry) bool { return row.Seq > seq }); at >= 0 {
		return rows[at:]
	}
	return nil
}

// durableTries bounds how often Durable looks whether the rows are being written.
const durableTries = 100

// Durable answers the rows of the trail that are durable and may be in no table, false
// where they are just being written. A group that is too large for the journal is written
// with that lock held, and takes the one of the writer, so there is no wait here.
func (t *Trail) Durable() ([]keyserver.AuditEntry, bool) {
	j := t.journal.Load()
	if j == nil {
		return nil, true
	}
	for range durableTries {
		if j.mu.TryLock() {
			defer j.mu.Unlock()
			return slices.Clone(j.pending), true
		}
		runtime.Gosched()
	}
	return nil, false
}

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

// Settled waits until every row that this process has written to the journal is in the
// tables. The methods of Reads do not wait: they may run in a transaction on the connection
// that fills the tables.
func (t *AuditLog) Settled(ctx context.Context) error {
	if j := t.journal.Load(); j != nil {
		return j.flush(ctx)
	}
	return nil
}

// AuditRows is Reads.AuditRows after Settled.
func (t *AuditLog) AuditRows(ctx context.Context, filter keyserver.AuditFilter) (keyserver.AuditPage, error) {
	if err := t.Settled(ctx); err != nil {
		return keyserver.AuditPage{}, err
	}
	return t.reads.AuditRows(ctx, filter)
}

// KeyUses is Reads.KeyUses after Settled.
func (t *AuditLog) KeyUses(ctx context.Context, keys []keyserver.ID) (map[keyserver.ID]KeyUse, error) {
	if err := t.Settled(ctx); err != nil {
		return nil, err
	}
	return t.reads.KeyUses(ctx, keys)
}

// AuditSnapshot implements audit.Reader. If the database is read-only, the snapshot includes
// rows that are only in the journal of another process. That process may be running, or
// ended before it wrote these rows to the tables.
func (t *AuditLog) AuditSnapshot(ctx context.Context) (audit.Snapshot, error) {
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

// AuditRange implements audit.Reader.
func (t *AuditLog) AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
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

// AuditEnd returns the greatest sequence number among the rows, or 0 if there are none.
func (t *AuditLog) AuditEnd(ctx context.Context) (int64, error) {
	if err := t.Settled(ctx); err != nil {
		return 0, err
	}
	end, err := t.reads.AuditEnd(ctx)
	if tail := t.tail.Load(); err == nil && tail != nil && len(*tail) > 0 {
		end = max(end, (*tail)[len(*tail)-1].Seq)
	}
	return end, err
}

// Limits of the retries of unfilled. Another process may change the tables and the journal while unfilled reads them.
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

// copyRemedy ends the error messages about a journal that does not match a database that was opened
// read-only.
const copyRemedy = "; serve refuses it, too. A copy of an embedded database needs keyserver.db, and also keyserver.db-wal and audit.journal if they exist"

// unfilledRows returns the rows that are only in the journal, and the position after these rows. It rejects the same
// journals as replay.
func (e embedded) unfilledRows(ctx context.Context) ([]keyserver.AuditEntry, logPosition, error) {
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
		err = e.checkStaleJournal(id, there, end)
	}
	if err != nil {
		return nil, end, sqldb.Refuse(sqldb.ErrUnusable, "%s%s", err, copyRemedy)
	}
	rows, end, err := parseGroups(nil, end, groups)
	if err != nil {
		err = sqldb.Refuse(sqldb.ErrUnusable, "the audit journal does not belong to the database: %s%s", err, copyRemedy)
	}
	return rows, end, err
}

// RowsAfter returns the durable rows after seq, in their order, or false if some of them are
// no longer in memory.
func (t *AuditLog) RowsAfter(seq int64) ([]keyserver.AuditEntry, bool) {
	var rows []keyserver.AuditEntry
	if j := t.journal.Load(); j != nil {
		var complete bool
		if rows, complete = j.rowsAfter(seq); !complete {
			return nil, false
		}
		seq += int64(len(rows))
	}
	if t.opts.Copied != nil {
		if copied := rowsAfter(*t.opts.Copied, seq); copied != nil {
			rows = copied
		}
	}
	return rows, true
}

func rowsAfter(rows []keyserver.AuditEntry, seq int64) []keyserver.AuditEntry {
	if at := slices.IndexFunc(rows, func(row keyserver.AuditEntry) bool { return row.Seq > seq }); at >= 0 {
		return rows[at:]
	}
	return nil
}

const durableTries = 100

// Durable returns the rows that are durable in the journal and may be in no table yet. It
// returns false if the lock of the journal is not free after durableTries attempts. It does
// not wait for that lock: the caller has the connection for writes, and appendAtOnce waits
// for that connection while it holds the lock.
func (t *AuditLog) Durable() ([]keyserver.AuditEntry, bool) {
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

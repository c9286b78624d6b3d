package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// settled waits until every row that this process was told is durable is in the
// tables. A Tx does not: it holds the connection that fills them.
func (s *Store) settled(ctx context.Context) error {
	if j := s.journal.Load(); j != nil {
		return j.flush(ctx)
	}
	return nil
}

// AuditRows reads the rows that a filter selects, 100 of them unless the filter
// says otherwise, at most 1000. It looks at a bounded number of rows: a page may
// be short, even empty, and still have a Next.
func (s *Store) AuditRows(ctx context.Context, filter keyserver.AuditFilter) (keyserver.AuditPage, error) {
	if err := s.settled(ctx); err != nil {
		return keyserver.AuditPage{}, err
	}
	return s.reads.AuditRows(ctx, filter)
}

// KeyUses reads those of keys; one that was never used is not among them.
func (s *Store) KeyUses(ctx context.Context, keys []keyserver.ID) (map[keyserver.ID]KeyUse, error) {
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	return s.reads.KeyUses(ctx, keys)
}

// AuditSnapshot implements audit.Trail. Beside a process that writes, and after one
// that was not stopped, it also has the rows that are only in the journal.
func (s *Store) AuditSnapshot(ctx context.Context) (audit.Snapshot, error) {
	if s.writer != nil {
		if err := s.settled(ctx); err != nil {
			return audit.Snapshot{}, err
		}
		return s.reads.AuditSnapshot(ctx)
	}
	snapshot, rows, err := s.dialect.unfilled(ctx, s)
	s.tail.Store(&rows)
	return snapshot, err
}

// AuditRange implements audit.Trail.
func (s *Store) AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	rows, err := s.reads.AuditRange(ctx, after, last, limit)
	if tail := s.tail.Load(); err == nil && tail != nil {
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
func (s *Store) AuditEnd(ctx context.Context) (int64, error) {
	if err := s.settled(ctx); err != nil {
		return 0, err
	}
	end, err := s.reads.AuditEnd(ctx)
	if tail := s.tail.Load(); err == nil && tail != nil && len(*tail) > 0 {
		end = max(end, (*tail)[len(*tail)-1].Seq)
	}
	return end, err
}

// Somebody who writes may fill the tables, and use the journal again, while both are
// read.
const (
	unfilledTries = 50
	unfilledPause = 10 * time.Millisecond
)

func (d *sqlite) unfilled(ctx context.Context, s *Store) (snapshot audit.Snapshot, rows []keyserver.AuditEntry, err error) {
	for range unfilledTries {
		if snapshot, rows, err = d.unfilledNow(ctx, s); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(unfilledPause)
	}
	return snapshot, rows, err
}

func (d *sqlite) unfilledNow(ctx context.Context, s *Store) (audit.Snapshot, []keyserver.AuditEntry, error) {
	rows, end, err := d.unfilledRows(ctx, s)
	if err != nil {
		return audit.Snapshot{}, nil, err
	}
	snapshot, err := s.reads.AuditSnapshot(ctx)
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
func (d *sqlite) unfilledRows(ctx context.Context, s *Store) ([]keyserver.AuditEntry, reached, error) {
	open, id, end, err := s.reads.journal(ctx)
	if errors.Is(err, ErrNotFound) {
		return nil, end, errNoJournal
	}
	if err != nil {
		return nil, end, err
	}
	there, err := journal.Load(d.dir)
	if errors.Is(err, journal.ErrMissing) && !open {
		return nil, end, nil
	}
	var groups []journal.Group
	switch {
	case err != nil:
	case open:
		groups, err = there.Groups(id, end.at)
	default:
		err = d.needsNone(id, there, end)
	}
	if err != nil {
		return nil, end, refuse(ErrUnusable, "%s%s", err, copyOf)
	}
	rows, end, err := follows(nil, end, groups)
	if err != nil {
		err = refuse(ErrUnusable, "the audit journal beside the database is not of it: %s%s", err, copyOf)
	}
	return rows, end, err
}

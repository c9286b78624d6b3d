package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Bounds of reading the trail.
const (
	defaultAuditPage = 100
	maxAuditPage     = 1000
	// auditWindow is how many rows one statement may look at, and auditWindows
	// how many windows one call may go through, when a filter selects few of them.
	auditWindow  = 50_000
	auditWindows = 20
)

// ClaimChain implements audit.Store.
func (s *Store) ClaimChain(ctx context.Context) (audit.Chain, error) {
	if s.writer == nil {
		return nil, errors.New("the database is open for reading only")
	}
	return s.dialect.claimChain(ctx, s)
}

// writeAlone runs a transaction on the connection that Update uses.
func (s *Store) writeAlone(ctx context.Context, fn func(in statements) error) error {
	if err := s.writer.lock(ctx); err != nil {
		return err
	}
	defer s.writer.unlock()
	return s.writer.transact(ctx, fn)
}

func appendAuditRow(args []any, e *keyserver.AuditEntry) []any {
	return append(args, e.Seq, e.Time.UnixMicro(), e.Operation, string(e.Outcome), e.Reason,
		int64(e.Principal.System), e.Principal.ID[:], e.Object, string(e.Kind), e.RequestID, e.Filename,
		e.Chain, e.Position, e.Hash[:], e.Previous[:], int64(e.Actor.System), orNull(e.Actor.ID),
		e.Address, orNull(e.Session), e.For, e.Times(), orNull(e.Approval))
}

const auditColumns = `seq, time, operation, outcome, reason, system_id, principal_id,
	object, kind, request_id, filename, chain, position, hash, previous, actor_system, actor_id,
	address, session_id, acting_for, times, approval_id`

func (s statements) auditEntries(ctx context.Context, text string, args ...any) ([]keyserver.AuditEntry, error) {
	var entries []keyserver.AuditEntry
	err := s.each(ctx, text, args, func(row scanner) error {
		entries = append(entries, keyserver.AuditEntry{})
		e := &entries[len(entries)-1]
		return row.Scan(&e.Seq, intoTime{&e.Time}, &e.Operation, &e.Outcome, &e.Reason, &e.Principal.System, untrusted{e.Principal.ID[:]},
			&e.Object, &e.Kind, &e.RequestID, &e.Filename, &e.Chain, &e.Position, untrusted{e.Hash[:]}, untrusted{e.Previous[:]},
			&e.Actor.System, untrusted{e.Actor.ID[:]},
			&e.Address, untrusted{e.Session[:]}, &e.For, &e.Count, untrusted{e.Approval[:]})
	})
	return entries, err
}

// AuditRows reads the rows that a filter selects, oldest first, 100 of them
// unless the filter says otherwise, at most 1000. It looks at a bounded number
// of rows: a page may be short, even empty, and still have a Next.
func (r reads) AuditRows(ctx context.Context, filter keyserver.AuditFilter) (keyserver.AuditPage, error) {
	limit := filter.Limit
	if limit <= 0 {
		limit = defaultAuditPage
	}
	limit = min(limit, maxAuditPage)
	var end int64
	if err := r.row(ctx, `SELECT coalesce(max(seq), 0) FROM audit`, nil, &end); err != nil {
		return keyserver.AuditPage{}, err
	}
	q := auditQuery(filter)
	page := keyserver.AuditPage{Entries: []keyserver.AuditEntry{}}
	after := max(filter.After, 0)
	for range auditWindows {
		if after >= end {
			return page, nil
		}
		window := end
		if !q.indexed {
			window = min(end, after+auditWindow)
		}
		rows, err := r.auditEntries(ctx, q.text, append([]any{after, window, limit - len(page.Entries) + 1}, q.args...)...)
		if err != nil {
			return keyserver.AuditPage{}, err
		}
		page.Entries = append(page.Entries, rows...)
		if len(page.Entries) > limit {
			page.Entries = page.Entries[:limit]
			page.Next = page.Entries[limit-1].Seq
			return page, nil
		}
		after = window
	}
	if after < end {
		page.Next = after
	}
	return page, nil
}

// auditStatement is the query of a filter: $1 < seq <= $2, limit $3.
type auditStatement struct {
	text    string
	args    []any // from $4 on
	indexed bool  // an index finds the rows, however rare they are
}

func auditQuery(f keyserver.AuditFilter) auditStatement {
	q := auditStatement{text: `SELECT ` + auditColumns + ` FROM audit WHERE seq > $1 AND seq <= $2`}
	where := func(condition string, arg any) {
		q.args = append(q.args, arg)
		q.text += fmt.Sprintf(" AND "+condition, 3+len(q.args))
	}
	if f.Reason != "" {
		where(`reason <> '' AND reason = $%d`, f.Reason)
	}
	if f.Principal != nil {
		where(`principal_id = $%d`, f.Principal[:])
	}
	// A second condition may again select few of the rows that an index finds.
	q.indexed = len(q.args) == 1
	if f.Operation != "" {
		where(`operation = $%d`, f.Operation)
	}
	if f.Address != "" {
		where(`address = $%d`, f.Address)
	}
	if !f.Since.IsZero() {
		where(`time >= $%d`, f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		where(`time < $%d`, f.Until.UnixMicro())
	}
	q.indexed = q.indexed && len(q.args) == 1
	q.text += ` ORDER BY seq LIMIT $3`
	return q
}

// maxChains bounds the heads that a snapshot holds. Chains are as many as
// there were ever writers at the same time.
const maxChains = 4096

// AuditSnapshot implements audit.Trail. One statement, so that all of it is of
// one moment.
func (r reads) AuditSnapshot(ctx context.Context) (audit.Snapshot, error) {
	var snapshot audit.Snapshot
	err := r.each(ctx, `SELECT s.value, (SELECT coalesce(max(seq), 0) FROM audit),
			coalesce(c.chain, 0), coalesce(c.position, 0), c.head
		FROM sequences s LEFT JOIN audit_chains c ON 1 = 1
		WHERE s.name = 'audit' ORDER BY c.chain LIMIT $1`, []any{maxChains}, func(row scanner) error {
		var head audit.Head
		var hash []byte
		if err := row.Scan(&snapshot.LastSeq, &snapshot.MaxSeq, &head.Chain, &head.Position, &hash); err != nil {
			return err
		}
		if hash != nil {
			copy(head.Hash[:], hash)
			snapshot.Heads = append(snapshot.Heads, head)
		}
		return nil
	})
	return snapshot, err
}

// AuditRange implements audit.Trail.
func (r reads) AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	return r.auditEntries(ctx, `SELECT `+auditColumns+` FROM audit WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3`,
		after, last, limit)
}

package auditrows

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// ClaimChain implements audit.Store.
func (t *AuditLog) ClaimChain(ctx context.Context) (audit.Chain, error) {
	if t.db.ReadOnly() {
		return nil, errors.New("the database is open read-only")
	}
	if err := t.reads.checkAuditTables(ctx); err != nil {
		return nil, err
	}
	return t.kind.claimChain(ctx)
}

// maxSeq is more than the number of rows that a database can have.
const maxSeq = 1 << 53

// checkAuditTables returns an error if the tables of the audit log contradict each other. No
// process could append rows then.
func (r Reads) checkAuditTables(ctx context.Context) error {
	var counter, last, chains, extents int64
	err := r.sql.Row(ctx, `SELECT coalesce((SELECT value FROM sequences WHERE name = 'audit'), -1), (SELECT coalesce(max(seq), 0) FROM audit),
		(SELECT count(*) FROM audit_chains), (SELECT count(*) FROM audit_extent WHERE first > 0)`, nil, &counter, &last, &chains, &extents)
	var what string
	switch {
	case err != nil:
		return err
	case counter < last || counter > maxSeq:
		what = fmt.Sprintf("its last row is %d, but the table sequences says %d", last, counter)
	case last > 0 && chains == 0:
		what = "the table audit_chains has no chain"
	case extents != 1:
		what = "the table audit_extent does not name the first row"
	default:
		return nil
	}
	return sqldb.Refuse(sqldb.ErrUnusable, "the audit log in the database was changed by another program: %s; restore the database from a backup", what)
}

func appendAuditRow(args []any, e *keyserver.AuditEntry) []any {
	return append(args, e.Seq, e.Time.UnixMicro(), e.Operation, string(e.Outcome), e.Reason,
		int64(e.Principal.System), e.Principal.ID[:], e.Object, string(e.Kind), e.RequestID, e.Filename,
		e.Chain, e.Position, e.Hash[:], e.Previous[:], int64(e.Actor.System), sqldb.OrNull(e.Actor.ID),
		e.Address, sqldb.OrNull(e.Session), e.For, e.Times(), sqldb.OrNull(e.Approval))
}

const auditColumns = `seq, time, operation, outcome, reason, system_id, principal_id,
	object, kind, request_id, filename, chain, position, hash, previous, actor_system, actor_id,
	address, session_id, acting_for, times, approval_id`

func (r Reads) auditEntries(ctx context.Context, text string, args ...any) ([]keyserver.AuditEntry, error) {
	var entries []keyserver.AuditEntry
	err := r.sql.Each(ctx, text, args, func(row sqldb.Scanner) error {
		entries = append(entries, keyserver.AuditEntry{})
		e := &entries[len(entries)-1]
		return row.Scan(&e.Seq, sqldb.IntoTime(&e.Time), &e.Operation, &e.Outcome, &e.Reason, &e.Principal.System, sqldb.Untrusted(e.Principal.ID[:]),
			&e.Object, &e.Kind, &e.RequestID, &e.Filename, &e.Chain, &e.Position, sqldb.Untrusted(e.Hash[:]), sqldb.Untrusted(e.Previous[:]),
			&e.Actor.System, sqldb.Untrusted(e.Actor.ID[:]),
			&e.Address, sqldb.Untrusted(e.Session[:]), &e.For, &e.Count, sqldb.Untrusted(e.Approval[:]))
	})
	return entries, err
}

// maxChains is the maximum number of chains in a snapshot. Each concurrent writer has a chain. A new writer uses the
// chain of a writer that has ended.
const maxChains = 4096

// AuditSnapshot implements audit.Reader. It uses one statement, so that the snapshot is
// consistent.
func (r Reads) AuditSnapshot(ctx context.Context) (audit.Snapshot, error) {
	var snapshot audit.Snapshot
	err := r.sql.Each(ctx, `SELECT s.value, (SELECT coalesce(max(seq), 0) FROM audit),
			coalesce(c.chain, 0), coalesce(c.position, 0), c.head,
			(SELECT first FROM audit_extent), coalesce(k.position, 0), k.head
		FROM sequences s LEFT JOIN audit_chains c ON 1 = 1 LEFT JOIN audit_cuts k ON k.chain = c.chain
		WHERE s.name = 'audit' ORDER BY c.chain LIMIT $1`, []any{maxChains}, func(row sqldb.Scanner) error {
		var head audit.Head
		var hash, cutHash []byte
		var cut audit.Head
		err := row.Scan(&snapshot.LastSeq, &snapshot.MaxSeq, &head.Chain, &head.Position, &hash, &snapshot.First, &cut.Position, &cutHash)
		if err != nil {
			return err
		}
		if hash != nil {
			copy(head.Hash[:], hash)
			snapshot.Heads = append(snapshot.Heads, head)
		}
		if cutHash != nil {
			cut.Chain = head.Chain
			copy(cut.Hash[:], cutHash)
			snapshot.Cuts = append(snapshot.Cuts, cut)
		}
		return nil
	})
	return snapshot, err
}

// AuditRange implements audit.Reader.
func (r Reads) AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	if err := r.checkNotPruned(ctx, after+1); err != nil {
		return nil, err
	}
	return r.auditEntries(ctx, `SELECT `+auditColumns+` FROM audit WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3`,
		after, last, limit)
}

package auditrows

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const auditExtent = `SELECT first, archived FROM audit_extent`

// AuditExtent returns the first row in the database and the last row in the archive.
func (r Reads) AuditExtent(ctx context.Context) (e audit.Extent, err error) {
	err = r.sql.Row(ctx, auditExtent, nil, &e.First, &e.Archived)
	return e, err
}

// Archived records that the archive has all rows up to last.
func (t *AuditLog) Archived(ctx context.Context, last int64) error {
	_, err := t.db.ExecCommitted(ctx, `UPDATE audit_extent SET archived = $1 WHERE archived < $1`, last)
	return err
}

// PruneAudit records that the audit log in the database begins after the archived row
// last. heads are the positions and hashes of the chains at that row. SweepAudit deletes
// the rows.
func (t *AuditLog) PruneAudit(ctx context.Context, last int64, heads []audit.Head) error {
	return t.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		n, err := in.Exec(ctx, `UPDATE audit_extent SET first = $1 WHERE first < $1 AND archived >= $2`, last+1, last)
		if err != nil || n == 0 { // another replica was first
			return err
		}
		for _, h := range heads {
			_, err := in.Exec(ctx, `INSERT INTO audit_cuts (chain, position, head) VALUES ($1, $2, $3)
				ON CONFLICT (chain) DO UPDATE SET position = excluded.position, head = excluded.head`, h.Chain, h.Position, h.Hash[:])
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// SweepAudit deletes some of the rows before the first row that PruneAudit recorded, and reports whether there are
// more. On PostgreSQL it also creates partitions in advance.
func (t *AuditLog) SweepAudit(ctx context.Context) (more bool, err error) {
	extent, err := t.reads.AuditExtent(ctx)
	if err != nil {
		return false, err
	}
	if more, err = t.kind.sweep(ctx, extent.First); err != nil || more {
		return more, err
	}
	return t.PruneAuditBlocks(ctx, extent.First)
}

// checkNotPruned returns an error if a row is before the first row of the database, even if the
// row is not deleted yet.
func (r Reads) checkNotPruned(ctx context.Context, seq int64) error {
	extent, err := r.AuditExtent(ctx)
	if err == nil && seq < extent.First {
		err = archived(seq, extent.First)
	}
	return err
}

func archived(seq, first int64) error {
	return fault.New(fault.Archived, "row %d is no longer in the database, which begins at row %d; it is in the segment %s of the audit archive: read it with keyserver-operator audit show --archive",
		seq, first, audit.Segment(seq)).Audited(fault.ReasonObjectNotFound)
}

// sweepPage is the number of audit rows that one transaction deletes in SQLite. Other writes wait some milliseconds for
// that transaction. SQLite reuses the space of the rows; the file does not shrink.
const sweepPage = 1024

func (e embedded) sweep(ctx context.Context, first int64) (bool, error) {
	var oldest int64
	err := e.db.Row(ctx, `SELECT coalesce(min(seq), 0) FROM audit WHERE seq < $1`, []any{first}, &oldest)
	if err != nil || oldest == 0 {
		return false, err
	}
	n, err := e.db.ExecCommitted(ctx, `DELETE FROM audit WHERE seq >= $1 AND seq < $2`, oldest, min(oldest+sweepPage, first))
	return n > 0, err
}

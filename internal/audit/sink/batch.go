package sink

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// A batch has at most so many rows, and so many bytes of their encoding unless one row
// alone has more. As JSON, with the encoding in base64, it is about six times that.
const (
	maxRows  = 1000
	maxBytes = 256 << 10
)

// batch are rows that follow each other, and what proves that they do.
type batch struct {
	tree.Extent
	Log string // the origin of the checkpoint

	source Source
	rows   []keyserver.AuditEntry
	raw    [][]byte // their encodings
}

// collect makes the next batch. What the tree does not prove does not leave.
func (r *Runner) collect(ctx context.Context, head audit.TreeHead) (*batch, error) {
	rows, err := r.Store.AuditRange(ctx, r.sent, min(head.Size, r.sent+int64(r.most)), r.most)
	if err != nil {
		return nil, err
	}
	if rows, err = r.overGap(ctx, head, rows); err != nil {
		return nil, err
	}
	b := &batch{Log: r.Key.Name(), source: r.Source}
	var leaves []tlog.Hash
	size := 0
	for i := range rows {
		raw := audit.AppendEncoding(nil, &rows[i])
		if size += len(raw); size > maxBytes && i > 0 {
			break
		}
		b.raw, leaves = append(b.raw, raw), append(leaves, tlog.RecordHash(raw))
	}
	b.rows = rows[:len(b.raw)]
	first, last := b.rows[0].Seq, b.rows[len(b.rows)-1].Seq
	if b.Extent, err = tree.Extend(ctx, r.Store, head, first, last); err != nil {
		return nil, err
	}
	return b, b.VerifyLeaves(leaves, r.Key)
}

// overGap goes on behind rows that are no longer kept: the range of the batch says so.
// Rows that lack anywhere else are not passed over.
func (r *Runner) overGap(ctx context.Context, head audit.TreeHead, rows []keyserver.AuditEntry) ([]keyserver.AuditEntry, error) {
	if len(rows) > 0 && rows[0].Seq == r.sent+1 {
		return rows, nil
	}
	start, err := r.Store.AuditStart(ctx)
	if err != nil {
		return nil, err
	}
	if start <= r.sent+1 || start > head.Size {
		return nil, fmt.Errorf("%w: the row %d is missing", tree.ErrInconsistent, r.sent+1)
	}
	r.Logger.Warn("rows of the audit trail were removed before an audit sink had them; the archive has them", "sink", r.target.Name, "first", r.sent+1, "last", start-1)
	rows, err = r.Store.AuditRange(ctx, start-1, min(head.Size, start-1+int64(r.most)), r.most)
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%w: the row %d is missing", tree.ErrInconsistent, start)
	}
	return rows, err
}

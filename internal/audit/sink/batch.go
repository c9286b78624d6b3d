package sink

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// A batch has at most maxRows rows. The encodings of its rows have at most maxBytes bytes in total, unless one row
// alone is larger. As JSON, with the encodings in base64, a batch is about six times larger.
const (
	maxRows  = 1000
	maxBytes = 256 << 10
)

// batch contains consecutive rows, and the proof that they are complete.
type batch struct {
	tree.Extent
	Log string // the origin of the checkpoint

	source Source
	rows   []keyserver.AuditEntry
	raw    [][]byte // the encodings of the rows
}

// collect returns the next batch. It fails if the audit tree does not prove the rows.
func (r *Runner) collect(ctx context.Context, head audit.TreeHead) (*batch, error) {
	after, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := r.Store.AuditRange(ctx, after, min(head.Size, after+int64(r.batchLimit)), r.batchLimit)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || rows[0].Seq != after+1 {
		return nil, fmt.Errorf("%w: row %d is missing", tree.ErrInconsistent, after+1)
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

// begin returns the number of the row before the next batch. It skips rows that are only in the archive; the row
// numbers of the batch show the gap. It does not skip rows that are missing for any other reason.
func (r *Runner) begin(ctx context.Context) (int64, error) {
	extent, err := r.Store.AuditExtent(ctx)
	if err != nil || extent.First <= r.sent+1 {
		return r.sent, err
	}
	r.Logger.Warn("audit rows were removed before an audit sink had them; the archive has them", "sink", r.target.Label, "first", r.sent+1, "last", extent.First-1)
	return extent.First - 1, nil
}

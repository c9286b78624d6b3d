package auditlog

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/auditverify"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// remoteLog is the audit log of a key server, read over /api.
type remoteLog struct {
	client *client.Client
	size   int64 // size of the audit tree
}

// first returns the sequence number of the first row that the key server has.
func (r *remoteLog) first(ctx context.Context) (int64, error) {
	limit := 1
	page, err := r.client.ListAuditEntries(ctx, schema.AuditQuery{Limit: &limit})
	if err != nil || page.ArchivedBefore == nil {
		return 1, err
	}
	return *page.ArchivedBefore, nil
}

// AuditTree implements tree.Reader.
func (r *remoteLog) AuditTree(ctx context.Context) (audit.TreeHead, error) {
	text, err := r.client.GetAuditCheckpoint(ctx)
	if err != nil {
		return audit.TreeHead{}, err
	}
	head, _, err := tree.Parse(text)
	if err != nil {
		return head, fmt.Errorf("the key server's checkpoint cannot be read: %w", err)
	}
	r.size = head.Size
	return head, nil
}

// AuditTile implements tree.Reader. It requests the width that the tile has in a tree of r.size rows.
func (r *remoteLog) AuditTile(ctx context.Context, level int, index int64) ([]byte, error) {
	width := min(r.size>>(schema.TileHeight*level)-index*schema.TileWidth, schema.TileWidth)
	hashes, err := r.client.GetAuditHashes(ctx, schema.AuditHashesRequest{
		Level: schema.TreeLevel(level), Tile: schema.TilePlace{Index: index, Width: int(width)},
	})
	if client.IsCode(err, "NOT_FOUND") {
		return nil, nil
	}
	return hashes, err
}

// AuditRange implements tree.Reader.
func (r *remoteLog) AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	page, err := r.client.ListAuditEntries(ctx, schema.AuditQuery{Cursor: after, Limit: &limit})
	if err != nil {
		return nil, err
	}
	var rows []keyserver.AuditEntry
	for i := range page.Entries {
		row, err := auditverify.Row(&page.Entries[i])
		if err != nil {
			return nil, fmt.Errorf("the key server's row %d cannot be read: %w", page.Entries[i].Seq, err)
		}
		if row.Seq <= after {
			return nil, fmt.Errorf("the key server returned row %d after row %d, but rows must be in ascending order", row.Seq, after)
		}
		if after = row.Seq; after <= last {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

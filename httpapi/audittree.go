package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func auditCheckpoint(a *API, ctx context.Context, _ call, _ nothing) (schema.Text, error) {
	return a.Operations.AuditCheckpoint(ctx)
}

func auditKey(a *API, ctx context.Context, _ call, _ nothing) (schema.AuditKey, error) {
	key, err := a.Operations.AuditKey(ctx)
	return schema.AuditKey(key), err
}

func auditReceipt(a *API, ctx context.Context, c call, in schema.ByRow) (schema.Text, error) {
	return a.Operations.AuditReceipt(ctx, c.by, int64(in.Seq))
}

func auditHashes(a *API, ctx context.Context, c call, in schema.AuditHashesRequest) (schema.Octets, error) {
	return a.Operations.AuditTile(ctx, c.by, keyserver.AuditTile{Level: int(in.Level), Index: in.Tile.Index, Width: in.Tile.Width})
}

func auditEntries(a *API, ctx context.Context, c call, in schema.AuditEntriesRequest) (schema.Octets, error) {
	return a.Operations.AuditTile(ctx, c.by, keyserver.AuditTile{Entries: true, Index: in.Tile.Index, Width: in.Tile.Width})
}

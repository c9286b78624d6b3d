package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func auditCheckpoint(ctx context.Context, ops *verified.Service, _ keyserver.Caller, _ routes.Nothing) (schema.Text, error) {
	return ops.AuditCheckpoint(ctx)
}

func auditKey(ctx context.Context, ops *verified.Service, _ keyserver.Caller, _ routes.Nothing) (schema.AuditKey, error) {
	key, err := ops.AuditKey(ctx)
	return schema.AuditKey(key), err
}

func auditReceipt(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ByRow) (schema.Text, error) {
	return ops.AuditReceipt(ctx, by, int64(in.Seq))
}

func auditHashes(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.AuditHashesRequest) (schema.Octets, error) {
	return ops.AuditTile(ctx, by, keyserver.AuditTile{Level: int(in.Level), Index: in.Tile.Index, Width: in.Tile.Width})
}

func auditEntries(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.AuditEntriesRequest) (schema.Octets, error) {
	return ops.AuditTile(ctx, by, keyserver.AuditTile{Entries: true, Index: in.Tile.Index, Width: in.Tile.Width})
}

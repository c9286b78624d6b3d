package client

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Audit reads one page of the audit trail.
func (c *Client) Audit(ctx context.Context, q schema.AuditQuery) (schema.AuditPage, error) {
	return get[schema.AuditPage](ctx, c, "/api/audit"+query(q))
}

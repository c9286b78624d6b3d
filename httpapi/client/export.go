package client

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// ExportKey answers a key encrypted for the certificate of a transport principal.
func (c *Client) ExportKey(ctx context.Context, in schema.ExportKeyRequest) (schema.ExportedKey, error) {
	return post[schema.ExportedKey](ctx, c, "/api/keys/export", in)
}

package client

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Configuration reads what may leave of a part of the key server's
// configuration; ROOT is all of it. NOT_FOUND where the path names nothing.
func (c *Client) Configuration(ctx context.Context, xpath string) (schema.Configuration, error) {
	return post[schema.Configuration](ctx, c, "/api/config/get", schema.ConfigRequest{XPath: xpath})
}

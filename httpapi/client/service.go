package client

import (
	"context"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Health asks whether the process serves. It needs no session.
func (c *Client) Health(ctx context.Context) (schema.Health, error) {
	return send[schema.Health](ctx, c, call{method: http.MethodGet, path: "/api/health", open: true, nameless: true})
}

// Ready asks part by part whether the service can work. It needs no session.
// The parts are filled also where the error says that it is not ready.
func (c *Client) Ready(ctx context.Context) (schema.Ready, error) {
	return send[schema.Ready](ctx, c, call{method: http.MethodGet, path: "/api/ready", open: true, nameless: true})
}

// Version reads the key server's version record.
func (c *Client) Version(ctx context.Context) (schema.Version, error) {
	return send[schema.Version](ctx, c, call{method: http.MethodPost, path: "/api/server/version", nameless: true})
}

// Operations lists the catalogue of operations.
func (c *Client) Operations(ctx context.Context) (schema.OperationList, error) {
	return get[schema.OperationList](ctx, c, "/api/operations")
}

package client

import (
	"context"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Principal reads one principal by its id in hexadecimal.
func (c *Client) Principal(ctx context.Context, id string) (schema.Principal, error) {
	path, err := hexPath("/api/principals", id)
	if err != nil {
		return schema.Principal{}, err
	}
	return send[schema.Principal](ctx, c, call{method: http.MethodGet, path: path})
}

// CreatePasswordPrincipal makes a password principal. NOT_SAVED, with the
// answer filled, where it does not read back.
func (c *Client) CreatePasswordPrincipal(ctx context.Context, in schema.CreatePasswordPrincipalRequest) (schema.PrincipalSaved, error) {
	if in.RoleIDs == nil {
		in.RoleIDs = []schema.HexID{}
	}
	return send[schema.PrincipalSaved](ctx, c, call{
		method: http.MethodPost, path: "/api/principals/password", body: in, nameless: true,
	})
}

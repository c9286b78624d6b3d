package client

import (
	"context"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const principalTrusts = "/api/principal-trusts"

// PrincipalTrusts reads the principal trusts that the query selects.
// INVALID_ARGUMENT where it asks for no page and there are more than 1024.
func (c *Client) PrincipalTrusts(ctx context.Context, q schema.PrincipalTrustsQuery) (schema.PrincipalTrustList, error) {
	return get[schema.PrincipalTrustList](ctx, c, principalTrusts+query(q))
}

// CreatePrincipalTrust makes the row of a principal for a peer. NOT_FOUND
// where either is not there; ALREADY_EXISTS where they have a row;
// NOT_PERSISTED, with the answer filled, where it does not read back.
func (c *Client) CreatePrincipalTrust(ctx context.Context, in schema.CreatePrincipalTrustRequest) (schema.PrincipalTrustSaved, error) {
	return post[schema.PrincipalTrustSaved](ctx, c, principalTrusts, in)
}

// UpdatePrincipalTrust sets the flag of a row to restrict or expose.
func (c *Client) UpdatePrincipalTrust(ctx context.Context, id, flag string) (schema.PrincipalTrustSaved, error) {
	path, err := hexPath(principalTrusts, id)
	if err != nil {
		return schema.PrincipalTrustSaved{}, err
	}
	return send[schema.PrincipalTrustSaved](ctx, c, call{method: http.MethodPut, path: path, body: schema.UpdatePrincipalTrustRequest{Flag: flag}})
}

// DeletePrincipalTrust deletes a row. NOT_REMOVED, with the answer filled,
// where a fresh read still finds it.
func (c *Client) DeletePrincipalTrust(ctx context.Context, id string) (schema.PrincipalTrustGone, error) {
	path, err := hexPath(principalTrusts, id)
	if err != nil {
		return schema.PrincipalTrustGone{}, err
	}
	return send[schema.PrincipalTrustGone](ctx, c, call{method: http.MethodDelete, path: path})
}

package client

import (
	"context"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const principals = "/api/principals"

// Principal reads one principal by its id in hexadecimal.
func (c *Client) Principal(ctx context.Context, id string) (schema.Principal, error) {
	path, err := hexPath(principals, id)
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
		method: http.MethodPost, path: principals + "/password", body: in, nameless: true,
	})
}

// CreateLDAPPrincipal makes an ldap principal. NOT_SAVED, with the answer
// filled, where it does not read back.
func (c *Client) CreateLDAPPrincipal(ctx context.Context, in schema.CreateLDAPPrincipalRequest) (schema.PrincipalSaved, error) {
	if in.RoleIDs == nil {
		in.RoleIDs = []schema.HexID{}
	}
	return send[schema.PrincipalSaved](ctx, c, call{method: http.MethodPost, path: principals + "/ldap", body: in, nameless: true})
}

// CreateXAuthPrincipal makes an xauth principal. NOT_SAVED, with the answer
// filled, where it does not read back.
func (c *Client) CreateXAuthPrincipal(ctx context.Context, in schema.CreateXAuthPrincipalRequest) (schema.PrincipalSaved, error) {
	if in.RoleIDs == nil {
		in.RoleIDs = []schema.HexID{}
	}
	return send[schema.PrincipalSaved](ctx, c, call{method: http.MethodPost, path: principals + "/xauth", body: in, nameless: true})
}

// Principals lists the principals of one type.
func (c *Client) Principals(ctx context.Context, q schema.PrincipalQuery) (schema.PrincipalPage, error) {
	return get[schema.PrincipalPage](ctx, c, principals+query(q))
}

// LookupPrincipals looks principals up by pairs. Those that cannot be resolved
// are absent.
func (c *Client) LookupPrincipals(ctx context.Context, pairs []schema.PrincipalPair) (schema.PrincipalsFound, error) {
	return send[schema.PrincipalsFound](ctx, c, call{
		method: http.MethodPost, path: principals + "/lookup", nameless: true, body: schema.LookupPrincipalsRequest{Principals: pairs},
	})
}

// UpdatePrincipalFlags sets the flags that are not nil. NOT_SAVED, with the
// answer filled, where they do not read back.
func (c *Client) UpdatePrincipalFlags(ctx context.Context, id string, in schema.UpdatePrincipalFlagsRequest) (schema.PrincipalFlagsSaved, error) {
	path, err := hexPath(principals, id)
	if err != nil {
		return schema.PrincipalFlagsSaved{}, err
	}
	return send[schema.PrincipalFlagsSaved](ctx, c, call{method: http.MethodPut, path: path + "/flags", body: in})
}

// UpdatePrincipalRoles makes the roles all that a principal holds. NOT_SAVED,
// with the answer filled, where they do not read back.
func (c *Client) UpdatePrincipalRoles(ctx context.Context, id string, roles []string) (schema.PrincipalRolesSaved, error) {
	path, err := hexPath(principals, id)
	if err != nil {
		return schema.PrincipalRolesSaved{}, err
	}
	ids, err := hexIDs("roleIds", roles)
	if err != nil {
		return schema.PrincipalRolesSaved{}, err
	}
	return send[schema.PrincipalRolesSaved](ctx, c, call{
		method: http.MethodPut, path: path + "/roles", body: schema.UpdatePrincipalRolesRequest{RoleIDs: ids},
	})
}

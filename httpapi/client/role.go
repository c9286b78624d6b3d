package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const roles = "/api/roles"

// Roles lists the roles.
func (c *Client) Roles(ctx context.Context) (schema.RoleList, error) {
	return get[schema.RoleList](ctx, c, roles)
}

// CreateRole makes a role of operations named by their ids. NOT_SAVED, with
// the answer filled, where it does not read back.
func (c *Client) CreateRole(ctx context.Context, name string, operations []string) (schema.RoleSaved, error) {
	ids, err := hexIDs("operations", operations)
	if err != nil {
		return schema.RoleSaved{}, err
	}
	return send[schema.RoleSaved](ctx, c, call{
		method: http.MethodPost, path: roles, nameless: true,
		body: schema.CreateRoleRequest{Name: name, Operations: ids},
	})
}

// UpdateRole renames a role, replaces its operations, or both.
func (c *Client) UpdateRole(ctx context.Context, id string, change schema.UpdateRoleRequest) (schema.RoleSaved, error) {
	path, err := hexPath(roles, id)
	if err != nil {
		return schema.RoleSaved{}, err
	}
	return send[schema.RoleSaved](ctx, c, call{method: http.MethodPut, path: path, body: change})
}

// DeleteRole deletes a role. NOT_REMOVED, with the answer filled, where a
// fresh read still shows it.
func (c *Client) DeleteRole(ctx context.Context, id string) (schema.RoleGone, error) {
	path, err := hexPath(roles, id)
	if err != nil {
		return schema.RoleGone{}, err
	}
	return send[schema.RoleGone](ctx, c, call{method: http.MethodDelete, path: path})
}

// hexPath appends an id to a path. An id that is not one would turn into
// another path, and its 404 would read as "unsupported".
func hexPath(base, id string) (string, error) {
	var hex schema.HexID
	if err := hex.UnmarshalText([]byte(id)); err != nil {
		return "", refuse("id", err)
	}
	return base + "/" + hex.String(), nil
}

// hexIDs is never nil: an empty set is sent as one.
func hexIDs(field string, ids []string) ([]schema.HexID, error) {
	out := make([]schema.HexID, len(ids))
	for i, id := range ids {
		if err := out[i].UnmarshalText([]byte(id)); err != nil {
			return nil, refuse(fmt.Sprintf("%s[%d]", field, i), err)
		}
	}
	return out, nil
}

package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func listRoles(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.RoleList, error) {
	list, err := ops.Roles(ctx, by)
	if err != nil {
		return schema.RoleList{}, err
	}
	return schema.RoleList{Count: len(list), Roles: Convert(list, roleOf), Detail: "every role, built-in ones included"}, nil
}

func createRole(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.CreateRoleRequest) (schema.RoleSaved, error) {
	r, err := ops.CreateRole(ctx, by, keyserver.NewRole{Name: in.Name, Operations: idsOf(in.Operations)})
	return roleSavedOf(r), err
}

func updateRole(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.UpdateRoleRequest) (schema.RoleSaved, error) {
	if in.Name == nil && in.Operations == nil {
		return schema.RoleSaved{}, fault.Field("name", "is missing, and so is operations; send at least one of them")
	}
	r, err := ops.UpdateRole(ctx, by, keyserver.RoleChange{ID: keyserver.ID(in.ID), Name: in.Name, Operations: idsOf(in.Operations)})
	return roleSavedOf(r), err
}

func deleteRole(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ByID) (schema.RoleGone, error) {
	r, err := ops.DeleteRole(ctx, by, keyserver.ID(in.ID))
	return schema.RoleGone{
		ID: schema.HexID(r.ID), Gone: r.Gone, Role: roleOf(r.Role), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func roleOf(r keyserver.Role) schema.Role {
	return schema.Role{ID: schema.HexID(r.ID), Name: r.Name, BuiltIn: &r.BuiltIn, Operations: hexIDs(r.Operations)}
}

func roleSavedOf(r verified.RoleResult) schema.RoleSaved {
	out := schema.RoleSaved{
		ID: schema.HexID(r.Requested.ID), Requested: r.Requested.Name, Saved: r.Saved, Missing: r.Missing,
		Verdict: schema.Verdict{Detail: r.Detail},
	}
	if r.Requested.Operations != nil {
		out.RequestedOperations = hexIDs(r.Requested.Operations)
	}
	out.Role = optional(r.Role, roleOf)
	return out
}

package routes

import (
	"net/http"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func principalRoutes() []Route {
	created := codes(fault.Escalation, fault.DutiesConflict, fault.AlreadyExists, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument)
	create := grants(keyserver.OpReadPrincipal, keyserver.OpCreatePrincipal)
	return []Route{
		endpoint[schema.PrincipalQuery, schema.PrincipalPage](Route{
			Name: "listPrincipals", Method: http.MethodGet, Path: "/api/principals", Session: true,
			Summary:    "Lists the principals of one type, sorted by name, completely or in pages.",
			Operations: grants(keyserver.OpListPrincipals), Faults: codes(fault.InvalidArgument),
		}),
		endpoint[schema.LookupPrincipalsRequest, schema.PrincipalsFound](Route{
			Name: "lookUpPrincipals", Method: http.MethodPost, Path: "/api/principals/lookup", Session: true,
			Summary:    "Finds principals by pairs of system id and principal id.",
			Operations: grants(keyserver.OpLookupPrincipals), Faults: codes(fault.InvalidArgument),
		}),
		endpoint[schema.CreatePasswordPrincipalRequest, schema.PrincipalSaved](Route{
			Name: "createPasswordPrincipal", Method: http.MethodPost, Path: "/api/principals/password", Makes: keyserver.ChangePrincipal, Extension: true, Session: true,
			Summary:    "Creates a password principal and verifies its name, type and roles.",
			Operations: create, Faults: created,
		}),
		endpoint[schema.CreateLDAPPrincipalRequest, schema.PrincipalSaved](Route{
			Name: "createLdapPrincipal", Method: http.MethodPost, Path: "/api/principals/ldap", Makes: keyserver.ChangePrincipal, Extension: true, Session: true,
			Summary:    "Creates an ldap principal and verifies its name, type and roles.",
			Operations: create, Faults: created,
		}),
		endpoint[schema.CreateXAuthPrincipalRequest, schema.PrincipalSaved](Route{
			Name: "createXauthPrincipal", Method: http.MethodPost, Path: "/api/principals/xauth", Makes: keyserver.ChangePrincipal, Extension: true, Session: true,
			Summary:    "Creates an xauth principal for one issuer and subject, and verifies all of its fields.",
			Operations: create, Faults: created,
		}),
		endpoint[schema.ByID, schema.Principal](Route{
			Name: "getPrincipal", Method: http.MethodGet, Path: "/api/principals/{id}", Names: keyserver.PrincipalSubject, Extension: true, Session: true,
			Summary:    "Returns a principal.",
			Operations: grants(keyserver.OpReadPrincipal), Faults: codes(fault.NotFound),
		}),
	}
}

// principalChangeRoutes returns the routes that change or delete one principal.
func principalChangeRoutes() []Route {
	updated := codes(fault.Escalation, fault.DutiesConflict, fault.InUse, fault.NotFound, fault.BuiltInPrincipal, fault.OwnAccount, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument)
	return []Route{
		endpoint[schema.UpdatePrincipalFlagsRequest, schema.PrincipalFlagsSaved](Route{
			Name: "updatePrincipalFlags", Method: http.MethodPut, Path: "/api/principals/{id}/flags", Session: true,
			Summary:    "Sets the named flags, changes no other bit, and verifies the complete flag word.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpUpdatePrincipalFlags),
			Faults:     append(codes(fault.NoFlagWord), updated...),
		}),
		endpoint[schema.DelegateRequest, schema.DelegateSaved](Route{
			Name: "addDelegate", Method: http.MethodPut, Path: "/api/principals/{id}/delegates/{pid}", Extension: true, Session: true,
			Summary:    "Adds a delegate of a principal and verifies it. Only delegates may act with the rights of the principal.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpUpdatePrincipalFlags),
			Faults:     append(codes(fault.NoFlagWord), updated...),
		}),
		endpoint[schema.DelegateRequest, schema.DelegateGone](Route{
			Name: "removeDelegate", Method: http.MethodDelete, Path: "/api/principals/{id}/delegates/{pid}", Extension: true, Session: true,
			Summary:    "Removes a delegate of a principal and verifies it. Removing the last one also clears the delegation flag.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpUpdatePrincipalFlags),
			Faults:     codes(fault.NoFlagWord, fault.NotRemoved, fault.NotFound, fault.BuiltInPrincipal, fault.OwnAccount, fault.ReadbackFailed, fault.InvalidArgument),
		}),
		endpoint[schema.UpdatePrincipalRolesRequest, schema.PrincipalRolesSaved](Route{
			Name: "updatePrincipalRoles", Method: http.MethodPut, Path: "/api/principals/{id}/roles", Extension: true, Session: true,
			Summary:    "Replaces the roles of a principal and verifies them.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpUpdatePrincipalRoles), Faults: updated,
		}),
		endpoint[schema.SetPasswordRequest, schema.PasswordSaved](Route{
			Name: "setPassword", Method: http.MethodPut, Path: "/api/principals/{id}/password", Extension: true, Session: true,
			Summary:    "Sets the password of a password principal and ends its sessions. For the caller's own account, it needs the current password and no role.",
			Operations: grants(keyserver.OpSetPassword),
			Faults: codes(fault.Escalation, fault.NotFound, fault.NoPassword, fault.InvalidCredentials, fault.LoginThrottled,
				fault.NotSaved, fault.ReadbackFailed),
		}),
		endpoint[schema.DeletePrincipalRequest, schema.PrincipalGone](Route{
			Name: "deletePrincipal", Method: http.MethodDelete, Path: "/api/principals/{id}", Extension: true, Session: true, Timeout: time.Minute,
			Summary:    "Deletes a principal with its sessions and certificates, ends its ACL entries on keys, and verifies its absence.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpDeletePrincipal),
			Faults: codes(fault.NotFound, fault.BuiltInPrincipal, fault.OwnAccount, fault.Escalation, fault.InUse, fault.InvalidArgument,
				fault.NotRemoved, fault.ReadbackFailed),
		}),
	}
}

func groupRoutes() []Route {
	change := grants(keyserver.OpReadPrincipal, keyserver.OpChangeGroupMembers)
	changed := codes(fault.NotFound, fault.BuiltInPrincipal, fault.OwnAccount, fault.ReadbackFailed, fault.InvalidArgument)
	return []Route{
		endpoint[schema.CreateGroupRequest, schema.PrincipalSaved](Route{
			Name: "createGroup", Method: http.MethodPost, Path: "/api/principals/groups", Makes: keyserver.ChangePrincipal, Extension: true, Session: true,
			Summary:    "Creates a group and verifies its name, type and roles.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpCreatePrincipal),
			Faults:     codes(fault.Escalation, fault.DutiesConflict, fault.AlreadyExists, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}),
		endpoint[schema.ListGroupMembersRequest, schema.GroupMembers](Route{
			Name: "listGroupMembers", Method: http.MethodGet, Path: "/api/principals/groups/{gid}/members", Extension: true, Session: true,
			Summary:    "Lists the members of a group, sorted by id, completely or in pages.",
			Operations: grants(keyserver.OpListGroupMembers), Faults: codes(fault.NotFound, fault.InvalidArgument),
		}),
		endpoint[schema.GroupMemberRequest, schema.GroupMemberSaved](Route{
			Name: "addGroupMember", Method: http.MethodPut, Path: "/api/principals/groups/{gid}/members/{pid}", Extension: true, Session: true,
			Summary:    "Adds a principal to a group and verifies it. An existing member stays unchanged.",
			Operations: change, Faults: append(codes(fault.Escalation, fault.DutiesConflict, fault.NotSaved), changed...),
		}),
		endpoint[schema.GroupMemberRequest, schema.GroupMemberGone](Route{
			Name: "removeGroupMember", Method: http.MethodDelete, Path: "/api/principals/groups/{gid}/members/{pid}", Extension: true, Session: true,
			Summary:    "Removes a principal from a group and verifies it.",
			Operations: change, Faults: append(codes(fault.NotRemoved, fault.InUse), changed...),
		}),
	}
}

func roleRoutes() []Route {
	return []Route{
		endpoint[Nothing, schema.RoleList](Route{
			Name: "listRoles", Method: http.MethodGet, Path: "/api/roles", Session: true,
			Summary:    "Lists the roles.",
			Operations: grants(keyserver.OpListRoles),
		}),
		endpoint[schema.CreateRoleRequest, schema.RoleSaved](Route{
			Name: "createRole", Method: http.MethodPost, Path: "/api/roles", Makes: keyserver.ChangeRole, Extension: true, Session: true,
			Summary:    "Creates a role and verifies its name and operations.",
			Operations: grants(keyserver.OpListRoles, keyserver.OpCreateRole),
			Faults:     codes(fault.Escalation, fault.DutiesConflict, fault.AlreadyExists, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}),
		endpoint[schema.UpdateRoleRequest, schema.RoleSaved](Route{
			Name: "updateRole", Method: http.MethodPut, Path: "/api/roles/{id}", Session: true,
			Summary:    "Renames a role, replaces its operations, or both, and verifies the changes.",
			Operations: grants(keyserver.OpListRoles, keyserver.OpUpdateRole),
			Faults:     codes(fault.Escalation, fault.DutiesConflict, fault.InUse, fault.NotFound, fault.BuiltIn, fault.AlreadyExists, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}),
		endpoint[schema.ByID, schema.RoleGone](Route{
			Name: "deleteRole", Method: http.MethodDelete, Path: "/api/roles/{id}", Names: keyserver.RoleSubject, Extension: true, Session: true,
			Summary:    "Deletes a role, removes it from all principals, and verifies its absence.",
			Operations: grants(keyserver.OpListRoles, keyserver.OpDeleteRole),
			Faults:     codes(fault.NotFound, fault.BuiltIn, fault.InUse, fault.NotRemoved, fault.ReadbackFailed, fault.InvalidArgument),
		}),
	}
}

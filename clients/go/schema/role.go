package schema

import (
	"bytes"
	"slices"
	"strings"
)

// Role is a named set of operations.
type Role struct {
	ID         HexID   `json:"id"`
	Name       string  `json:"name"`
	BuiltIn    *bool   `json:"builtIn" doc:"True for a role that the key server defines itself; such a role is read-only."`
	Operations []HexID `json:"operations" doc:"Operation ids from GET /api/operations."`
}

// RoleList is the response of GET /api/roles.
type RoleList struct {
	Count  int    `json:"count"`
	Roles  []Role `json:"roles"`
	Detail string `json:"detail" doc:"Text for people; the wording may change."`
}

// CreateRoleRequest requests a new role.
type CreateRoleRequest struct {
	Name       string  `json:"name" limit:"1..128"`
	Operations []HexID `json:"operations" names:"-" items:"0..1024" doc:"Complete set of operation ids."`
}

// UpdateRoleRequest renames a role, replaces its operations, or both.
type UpdateRoleRequest struct {
	ID   HexID   `path:"id" json:"-" names:"holders" doc:"16 hexadecimal digits."`
	Name *string `json:"name,omitzero" limit:"1..128"`
	// Operations is nil if the set stays as it is. An empty set removes every operation.
	Operations []HexID `json:"operations,omitzero" names:"-" items:"0..1024" doc:"Complete new set of operation ids. An empty set removes every operation."`
}

// RoleSaved is the result of creating or changing a role.
type RoleSaved struct {
	ID                  HexID   `json:"id"`
	Requested           *string `json:"requested,omitzero" doc:"Requested name; absent if none was sent."`
	RequestedOperations []HexID `json:"requestedOperations,omitzero" doc:"Requested operations; absent if none were sent."`
	Saved               bool    `json:"saved" doc:"True if the second read shows everything that was sent."`
	Missing             bool    `json:"missing,omitzero" doc:"True if the second read does not show the role."`
	Role                *Role   `json:"role" doc:"State from the second read; null if missing."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the role.
func (r RoleSaved) MissingEvidence() string { return notShown(r.Saved && r.Role != nil, "the role") }

// Mismatch returns "" if the second read shows the role as requested.
func (r CreateRoleRequest) Mismatch(answer RoleSaved) string {
	return mismatchWith(answer.Role.Name == strings.TrimSpace(r.Name) && sameIDs(answer.Role.Operations, r.Operations), "the role")
}

// Mismatch returns "" if the second read shows the role as requested.
func (r UpdateRoleRequest) Mismatch(answer RoleSaved) string {
	got := answer.Role
	return mismatchWith(got.ID == r.ID && (r.Name == nil || got.Name == strings.TrimSpace(*r.Name)) &&
		(r.Operations == nil || sameIDs(got.Operations, r.Operations)), "the role")
}

func sameIDs(a, b []HexID) bool {
	set := func(ids []HexID) []HexID {
		ids = slices.Clone(ids)
		slices.SortFunc(ids, func(a, b HexID) int { return bytes.Compare(a[:], b[:]) })
		return slices.Compact(ids)
	}
	return slices.Equal(set(a), set(b))
}

// RoleGone is the result of deleting a role.
type RoleGone struct {
	ID   HexID `json:"id"`
	Gone bool  `json:"gone" doc:"True if the second read no longer shows the role."`
	Role Role  `json:"role" doc:"State before the deletion."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the role.
func (r RoleGone) MissingEvidence() string { return notDeleted(r.Gone, "the role") }

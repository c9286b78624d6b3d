package keyserver

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Role is a named set of operations.
type Role struct {
	ID         ID
	Name       string
	BuiltIn    bool // defined by the key server, read-only
	Operations []ID // sorted, no duplicates
}

// RefuseChange returns BUILT_IN if the key server defines the role itself.
func (r Role) RefuseChange() error {
	if !r.BuiltIn {
		return nil
	}
	return fault.New(fault.BuiltIn, "role %q is system-defined and read-only; create a new role instead", r.Name).Audited(fault.ReasonBuiltIn)
}

// RoleFilter selects the role with the id and the role with the name. A zero field
// selects none.
type RoleFilter struct {
	ID   ID
	Name string
}

// NewRole is a request to create a role.
type NewRole struct {
	Name       string
	Operations []ID
}

// Role returns the requested role with the given id.
func (n NewRole) Role(id ID) Role {
	return Role{ID: id, Name: n.Name, Operations: NormalizeIDs(n.Operations)}
}

// RoleChange lists the changes to a role; a nil field stays as it is. An empty, non-nil
// Operations removes every operation.
type RoleChange struct {
	ID         ID
	Name       *string
	Operations []ID
}

// NormalizeIDs returns ids sorted and without duplicates, the form in which sets of ids
// are stored and compared. It never returns nil.
func NormalizeIDs(ids []ID) []ID {
	out := append([]ID{}, ids...)
	slices.SortFunc(out, func(a, b ID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out)
}

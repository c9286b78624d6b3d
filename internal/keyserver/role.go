package keyserver

import "slices"

// Role is a named set of operations.
type Role struct {
	ID         ID
	Name       string
	BuiltIn    bool // defined by the key server, read-only
	Operations []ID // sorted, no duplicates
}

// RoleFilter finds the role of an id and that of a name; what is zero finds
// none.
type RoleFilter struct {
	ID   ID
	Name string
}

// NewRole is a request to create a role.
type NewRole struct {
	Name       string
	Operations []ID
}

// Role is what is asked for, under an id.
func (n NewRole) Role(id ID) Role {
	return Role{ID: id, Name: n.Name, Operations: NormalizeIDs(n.Operations)}
}

// RoleChange names what to change of a role; a nil field stays as it is. An
// empty, non-nil Operations removes every operation.
type RoleChange struct {
	ID         ID
	Name       *string
	Operations []ID
}

// NormalizeIDs sorts ids and drops duplicates: the form in which sets of ids
// are stored and compared. It never returns nil.
func NormalizeIDs(ids []ID) []ID {
	out := append([]ID{}, ids...)
	slices.SortFunc(out, func(a, b ID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out)
}

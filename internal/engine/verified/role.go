package verified

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// RoleResult is the result of creating or changing a role.
type RoleResult struct {
	Requested keyserver.RoleChange // the change that was sent, with the id of the role
	Saved     bool
	Missing   bool            // no role has that id after the write
	Role      *keyserver.Role // as read back
	Detail    string
}

// RoleGone is the result of deleting a role.
type RoleGone struct {
	ID     keyserver.ID
	Gone   bool
	Role   keyserver.Role // before the deletion
	Detail string
}

// Roles reads all roles.
func (s *Service) Roles(ctx context.Context, by keyserver.Caller) ([]keyserver.Role, error) {
	return s.ks.Roles(ctx, by)
}

// CreateRole creates a role and verifies name and operations.
func (s *Service) CreateRole(ctx context.Context, by keyserver.Caller, n keyserver.NewRole) (RoleResult, error) {
	var err error
	if n.Name, err = cleanName("name", n.Name); err != nil {
		return RoleResult{}, err
	}
	n.Operations = keyserver.NormalizeIDs(n.Operations)
	if err := refuseUnknownOperations(n.Operations); err != nil {
		return RoleResult{}, err
	}
	var id keyserver.ID // the write sets it
	return verifiedWrite[[]keyserver.Role, RoleResult]{
		read: func(ctx context.Context) ([]keyserver.Role, error) {
			return s.ks.FindRoles(ctx, by, keyserver.RoleFilter{ID: id, Name: n.Name})
		},
		refuse: func(before []keyserver.Role) error { return refuseTakenName(before, keyserver.ID{}, n.Name) },
		write: func(ctx context.Context, _ []keyserver.Role) (err error) {
			id, err = s.ks.CreateRole(ctx, by, n)
			return err
		},
		verdict: func(_, after []keyserver.Role) (RoleResult, error) {
			return judgeRole(keyserver.RoleChange{ID: id, Name: &n.Name, Operations: n.Operations}, after)
		},
	}.do(ctx)
}

// UpdateRole changes the name of a role, its operations, or both.
func (s *Service) UpdateRole(ctx context.Context, by keyserver.Caller, change keyserver.RoleChange) (RoleResult, error) {
	if change.Name == nil && change.Operations == nil {
		return RoleResult{}, fault.New(fault.BadRequest, "name: is missing, and so is operations; send at least one of them")
	}
	if change.Name != nil {
		name, err := cleanName("name", *change.Name)
		if err != nil {
			return RoleResult{}, err
		}
		change.Name = &name
	}
	if change.Operations != nil {
		change.Operations = keyserver.NormalizeIDs(change.Operations)
		if err := refuseUnknownOperations(change.Operations); err != nil {
			return RoleResult{}, err
		}
	}
	about := keyserver.RoleFilter{ID: change.ID}
	if change.Name != nil {
		about.Name = *change.Name
	}
	return verifiedWrite[[]keyserver.Role, RoleResult]{
		read: func(ctx context.Context) ([]keyserver.Role, error) { return s.ks.FindRoles(ctx, by, about) },
		refuse: func(before []keyserver.Role) error {
			if err := refuseUnwritableRole(before, change.ID); err != nil {
				return err
			}
			if change.Name == nil {
				return nil
			}
			return refuseTakenName(before, change.ID, *change.Name)
		},
		write: func(ctx context.Context, _ []keyserver.Role) error { return s.ks.UpdateRole(ctx, by, change) },
		verdict: func(_, after []keyserver.Role) (RoleResult, error) {
			return judgeRole(change, after)
		},
	}.do(ctx)
}

// DeleteRole deletes a role and verifies that it is gone.
func (s *Service) DeleteRole(ctx context.Context, by keyserver.Caller, id keyserver.ID) (RoleGone, error) {
	return verifiedWrite[[]keyserver.Role, RoleGone]{
		read: func(ctx context.Context) ([]keyserver.Role, error) {
			return s.ks.FindRoles(ctx, by, keyserver.RoleFilter{ID: id})
		},
		refuse: func(before []keyserver.Role) error { return refuseUnwritableRole(before, id) },
		write:  func(ctx context.Context, _ []keyserver.Role) error { return s.ks.DeleteRole(ctx, by, id) },
		verdict: func(before, after []keyserver.Role) (RoleGone, error) {
			role, _ := findRole(before, id)
			r := RoleGone{ID: id, Role: role}
			if _, still := findRole(after, id); still {
				r.Detail = "the key server accepted the removal, but a fresh read still shows the role"
				return r, fault.New(fault.NotRemoved, "%s", r.Detail)
			}
			r.Gone = true
			r.Detail = fmt.Sprintf("a fresh read no longer shows the role %q; principals that had it have lost it", role.Name)
			return r, nil
		},
	}.do(ctx)
}

// judgeRole returns the verdict on a created or changed role. Each field in sent must be as requested. Operations are
// compared as a set.
func judgeRole(sent keyserver.RoleChange, after []keyserver.Role) (RoleResult, error) {
	r := RoleResult{Requested: sent}
	role, ok := findRole(after, sent.ID)
	switch {
	case !ok:
		r.Missing = true
		r.Detail = "the key server accepted the change, but a fresh read does not show the role"
	case sent.Name != nil && role.Name != *sent.Name:
		r.Role, r.Detail = &role, fmt.Sprintf("the key server accepted the change, but a fresh read shows the name %q", role.Name)
	case sent.Operations != nil && !slices.Equal(keyserver.NormalizeIDs(role.Operations), sent.Operations):
		r.Role, r.Detail = &role, fmt.Sprintf("a fresh read shows %d operations, which differ from the %d sent", len(role.Operations), len(sent.Operations))
	default:
		r.Role, r.Saved, r.Detail = &role, true, "a fresh read shows every field as sent"
		return r, nil
	}
	return r, fault.New(fault.NotSaved, "%s", r.Detail)
}

func refuseUnwritableRole(roles []keyserver.Role, id keyserver.ID) error {
	role, ok := findRole(roles, id)
	if !ok {
		return fault.New(fault.NotFound, "no role has the id %s; list them with GET /api/roles", id)
	}
	return role.RefuseChange()
}

func refuseTakenName(roles []keyserver.Role, self keyserver.ID, name string) error {
	for _, r := range roles {
		if r.Name == name && r.ID != self {
			return fault.New(fault.AlreadyExists, "name: role %[2]s already has the name %[1]q; choose another", name, r.ID)
		}
	}
	return nil
}

// refuseUnknownOperations returns an error for ids that are not operations. The key server would store them. They would
// grant nothing, or something else in a later version.
func refuseUnknownOperations(ids []keyserver.ID) error {
	for _, id := range ids {
		if !slices.ContainsFunc(keyserver.Operations, func(op keyserver.Operation) bool { return op.ID == id }) {
			return fault.New(fault.BadRequest, "operations: %s is not an operation; list them with GET /api/operations", id)
		}
	}
	return nil
}

func findRole(roles []keyserver.Role, id keyserver.ID) (keyserver.Role, bool) {
	for _, r := range roles {
		if r.ID == id {
			return r, true
		}
	}
	return keyserver.Role{}, false
}

package sqlstore

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Holdings are the roles that principals have, directly and through their groups. A
// principal without roles has no entry.
type Holdings map[keyserver.ID][]keyserver.ID

// HoldingsOf reads the holdings of one principal.
func (r reads) HoldingsOf(ctx context.Context, id keyserver.ID) (Holdings, error) {
	return r.holdings(ctx, `SELECT id FROM principals WHERE id = $1`, id[:])
}

// HoldingsOfMembers reads the holdings of a principal. If the principal is a group, it also reads the holdings of the
// members.
func (r reads) HoldingsOfMembers(ctx context.Context, id keyserver.ID) (Holdings, error) {
	return r.holdings(ctx, `SELECT id FROM principals WHERE id = $1 UNION SELECT member_id FROM group_members WHERE group_id = $1`, id[:])
}

// HoldingsWithRole reads the holdings of all principals with a role, directly or
// through a group.
func (r reads) HoldingsWithRole(ctx context.Context, role keyserver.ID) (Holdings, error) {
	return r.holdings(ctx, `SELECT principal_id FROM principal_roles WHERE role_id = $1
		UNION SELECT g.member_id FROM principal_roles r JOIN group_members g ON g.group_id = r.principal_id WHERE r.role_id = $1`, role[:])
}

// AllHoldings reads the holdings of every principal.
func (r reads) AllHoldings(ctx context.Context) (Holdings, error) {
	return r.holdings(ctx, `SELECT id FROM principals`)
}

// holdings reads the holdings of the principals that a query selects. It checks the
// MACs, so it fails for roles that another program wrote into the database.
func (r reads) holdings(ctx context.Context, query string, args ...any) (Holdings, error) {
	picked, err := r.sql.IDs(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	holders, err := r.PrincipalsByID(ctx, picked)
	if err != nil {
		return nil, err
	}
	var groups []keyserver.ID
	for _, p := range holders {
		groups = append(groups, p.Groups...)
	}
	list, err := r.PrincipalsByID(ctx, groups)
	if err != nil {
		return nil, err
	}
	of := map[keyserver.ID][]keyserver.ID{}
	for _, g := range list {
		of[g.ID] = g.Roles
	}
	held := Holdings{}
	for _, p := range holders {
		roles := p.Roles
		for _, g := range p.Groups {
			roles = append(roles, of[g]...)
		}
		if len(roles) > 0 {
			held[p.ID] = keyserver.NormalizeIDs(roles)
		}
	}
	return held, nil
}

// RolesInForce returns the roles of a principal, directly and through enabled groups.
func (r reads) RolesInForce(ctx context.Context, p keyserver.Principal) ([]keyserver.ID, error) {
	groups, err := r.PrincipalsByID(ctx, p.Groups)
	if err != nil {
		return nil, err
	}
	roles := p.Roles
	for _, g := range groups {
		if !g.Flags.Disabled() {
			roles = append(roles, g.Roles...)
		}
	}
	return keyserver.NormalizeIDs(roles), nil
}

// Granted returns the operations that roles grant. It ignores roles that do not exist.
func (r reads) Granted(ctx context.Context, roles []keyserver.ID) ([]keyserver.ID, error) {
	var operations []keyserver.ID
	for _, id := range keyserver.NormalizeIDs(roles) {
		role, err := r.Role(ctx, id)
		if errors.Is(err, sqldb.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		operations = append(operations, role.Operations...)
	}
	return keyserver.NormalizeIDs(operations), nil
}

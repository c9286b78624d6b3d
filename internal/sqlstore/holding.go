package sqlstore

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// holdingsQuery reads the roles of the principals that the query picks, with
// those of the groups that they are in.
func holdingsQuery(picked string) string {
	return `WITH picked(id) AS (` + picked + `)
		SELECT p.id, r.role_id FROM picked p JOIN principal_roles r ON r.principal_id = p.id
		UNION SELECT p.id, r.role_id FROM picked p JOIN group_members g ON g.member_id = p.id
			JOIN principal_roles r ON r.principal_id = g.group_id`
}

var (
	holdingsOfOne     = holdingsQuery(`SELECT id FROM principals WHERE id = $1`)
	holdingsOfMembers = holdingsQuery(`SELECT id FROM principals WHERE id = $1 UNION SELECT member_id FROM group_members WHERE group_id = $1`)
	holdingsWithRole  = holdingsQuery(`SELECT principal_id FROM principal_roles WHERE role_id = $1
		UNION SELECT g.member_id FROM principal_roles r JOIN group_members g ON g.group_id = r.principal_id WHERE r.role_id = $1`)
	holdingsOfAll = holdingsQuery(`SELECT id FROM principals`)
)

// Holdings are the roles that principals hold, their own and those of their
// groups. Who holds none is not in it.
type Holdings map[keyserver.ID][]keyserver.ID

// HoldingsOf reads those of one principal.
func (r reads) HoldingsOf(ctx context.Context, id keyserver.ID) (Holdings, error) {
	return r.holdings(ctx, holdingsOfOne, id[:])
}

// HoldingsOfMembers reads those of a principal and, where it is a group, of its
// members.
func (r reads) HoldingsOfMembers(ctx context.Context, id keyserver.ID) (Holdings, error) {
	return r.holdings(ctx, holdingsOfMembers, id[:])
}

// HoldingsWithRole reads those of whoever holds a role, directly or by a group.
func (r reads) HoldingsWithRole(ctx context.Context, role keyserver.ID) (Holdings, error) {
	return r.holdings(ctx, holdingsWithRole, role[:])
}

// AllHoldings reads those of every principal.
func (r reads) AllHoldings(ctx context.Context) (Holdings, error) {
	return r.holdings(ctx, holdingsOfAll)
}

func (r reads) holdings(ctx context.Context, query string, args ...any) (Holdings, error) {
	held := Holdings{}
	err := r.each(ctx, query, args, func(row scanner) error {
		var holder, role keyserver.ID
		if err := row.Scan(intoID(&holder), intoID(&role)); err != nil {
			return err
		}
		held[holder] = append(held[holder], role)
		return nil
	})
	return held, err
}

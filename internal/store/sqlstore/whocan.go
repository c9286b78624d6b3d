package sqlstore

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// MembersAfter returns up to limit ids of members of a group. The ids are sorted, and greater than the id after.
func (r reads) MembersAfter(ctx context.Context, group, after keyserver.ID, limit int) ([]keyserver.ID, error) {
	return r.sql.IDs(ctx, `SELECT member_id FROM group_members WHERE group_id = $1 AND member_id > $2 ORDER BY member_id LIMIT $3`, group[:], after[:], limit)
}

// HoldersAfter returns up to limit ids of principals and groups that have a role directly. The ids are sorted, and
// greater than the id after.
func (r reads) HoldersAfter(ctx context.Context, role, after keyserver.ID, limit int) ([]keyserver.ID, error) {
	return r.sql.IDs(ctx, `SELECT principal_id FROM principal_roles WHERE role_id = $1 AND principal_id > $2 ORDER BY principal_id LIMIT $3`, role[:], after[:], limit)
}

// GroupsWith returns the ids of the groups that have a role.
func (r reads) GroupsWith(ctx context.Context, role keyserver.ID) ([]keyserver.ID, error) {
	return r.sql.IDs(ctx, `SELECT r.principal_id FROM principal_roles r JOIN principals p ON p.id = r.principal_id WHERE r.role_id = $1 AND p.type = 'group' ORDER BY r.principal_id`, role[:])
}

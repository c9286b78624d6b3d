package sqlstore

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// CredentialsOf reads the credentials of principals: for each principal that exists
// a row of its credentials, and its certificates (see CertificatesOfThese).
func (r reads) CredentialsOf(ctx context.Context, ids []keyserver.ID) ([]*rowmac.Row, error) {
	var rows []*rowmac.Row
	certificates := r.Recording()
	for ids := keyserver.NormalizeIDs(ids); len(ids) > 0; ids = ids[min(sqldb.LookupSize, len(ids)):] {
		found, err := r.storedPrincipals(ctx, principalsByID, sqldb.Lookup(ids))
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			rows = append(rows, rowmac.Credentials(p.Principal, p.hash))
		}
	}
	if _, err := certificates.CertificatesOfThese(ctx, ids); err != nil {
		return nil, err
	}
	return append(rows, certificates.Rows...), nil
}

// MembersOf returns the ids of up to limit members of a group.
func (r reads) MembersOf(ctx context.Context, group keyserver.ID, limit int) ([]keyserver.ID, error) {
	return r.sql.IDs(ctx, `SELECT member_id FROM group_members WHERE group_id = $1 LIMIT $2`, group[:], limit)
}

// HoldersOf returns the ids of up to limit principals that have a role, directly or
// through a group.
func (r reads) HoldersOf(ctx context.Context, role keyserver.ID, limit int) ([]keyserver.ID, error) {
	return r.sql.IDs(ctx, `SELECT principal_id FROM principal_roles WHERE role_id = $1
		UNION SELECT g.member_id FROM principal_roles r JOIN group_members g ON g.group_id = r.principal_id WHERE r.role_id = $1 LIMIT $2`, role[:], limit)
}

package sqlstore

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// KeysOwnedAlone returns up to limit keys that a principal owns at the time at, and that have no other owner whose ACL
// entry has no end.
func (r reads) KeysOwnedAlone(ctx context.Context, p keyserver.PrincipalRef, at keyserver.Stamp, limit int) ([]keyserver.ID, error) {
	return r.sql.IDs(ctx, `SELECT k.id FROM stored_keys k WHERE k.acl_id IN (SELECT e.acl_id`+openEntries+` AND (e.rights & $5) <> 0)
			AND NOT EXISTS (SELECT 1 FROM acl_entries o WHERE o.acl_id = k.acl_id AND (o.rights & $5) <> 0 AND o.end_stamp = $4
				AND NOT (o.system_id = $1 AND o.principal_id = $2))
		ORDER BY k.id LIMIT $6`, int64(p.System), p.ID[:], at[:], make([]byte, len(at)), int64(keyserver.Owner), limit)
}

// PeerOfTransport returns the system id of the peer with this transport
// principal, or nil if there is no such peer.
func (r reads) PeerOfTransport(ctx context.Context, id keyserver.ID) (*keyserver.SystemID, error) {
	var system keyserver.SystemID
	err := r.sql.Row(ctx, `SELECT system_id FROM trusted_servers WHERE transport_id = $1`, []any{id[:]}, &system)
	if errors.Is(err, sqldb.ErrNotFound) {
		return nil, nil
	}
	return &system, err
}

// DeletePrincipal deletes a principal with its roles, memberships and identity.
// The caller must handle all other references to the principal first.
func (tx *Tx) DeletePrincipal(ctx context.Context, id keyserver.ID) error {
	members, err := tx.sql.IDs(ctx, `SELECT member_id FROM group_members WHERE group_id = $1`, id[:])
	if err != nil {
		return err
	}
	for _, member := range members {
		if err := tx.RemoveGroupMember(ctx, id, member); err != nil {
			return err
		}
	}
	if err := tx.sql.ExecOne(ctx, `DELETE FROM principals WHERE id = $1`, id[:]); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangePrincipal, id, keyserver.Deleted)
	return nil
}

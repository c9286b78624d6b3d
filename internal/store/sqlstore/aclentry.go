package sqlstore

import (
	"bytes"
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// maxKeyChanges is how many key changes one transaction may add to the change feed when it changes the ACL entries of a
// principal or peer. If there are more keys, it adds one change with the zero id instead. A million changes would
// remove all other changes from the feed.
const maxKeyChanges = 1000

// openEntries selects the entries of a principal that have not ended at $3. Stamps are big-endian, so their bytes sort
// by time.
const openEntries = ` FROM acl_entries e WHERE e.system_id = $1 AND e.principal_id = $2 AND (e.end_stamp = $4 OR e.end_stamp > $3)`

// HasOpenACLEntries reports whether a principal has entries that have not
// ended at a time.
func (r reads) HasOpenACLEntries(ctx context.Context, p keyserver.PrincipalRef, at keyserver.Stamp) (bool, error) {
	return r.sql.Found(ctx, `SELECT 1`+openEntries+` LIMIT 1`, int64(p.System), p.ID[:], at[:], make([]byte, len(at)))
}

// HasACLEntries reports whether a principal has any entry.
func (r reads) HasACLEntries(ctx context.Context, p keyserver.PrincipalRef) (bool, error) {
	return r.sql.Found(ctx, `SELECT 1 FROM acl_entries WHERE system_id = $1 AND principal_id = $2 LIMIT 1`, int64(p.System), p.ID[:])
}

// CloseACLEntries sets the end of the entries of a principal to at, but keeps earlier ends. It returns the number of
// changed entries.
func (tx *Tx) CloseACLEntries(ctx context.Context, p keyserver.PrincipalRef, at keyserver.Stamp) (int, error) {
	args := []any{int64(p.System), p.ID[:], at[:], make([]byte, len(at))}
	err := tx.changeKeys(ctx, func(k *storedKey) {
		for i, e := range k.entries {
			if e.Principal == p && (e.End.IsUnset() || bytes.Compare(e.End[:], at[:]) > 0) {
				k.entries[i].End = at
			}
		}
	}, `SELECT k.id FROM stored_keys k WHERE k.acl_id IN (SELECT e.acl_id`+openEntries+`)`, args...)
	if err != nil {
		return 0, err
	}
	n, err := tx.sql.Exec(ctx, `UPDATE acl_entries SET end_stamp = $3 WHERE id IN (SELECT e.id`+openEntries+`)`, args...)
	return int(n), err
}

const aclEntryColumns = `id, acl_id, system_id, principal_id, rights, max_usage, used, user_right, start_stamp, end_stamp`

// PurgeACLEntries moves all ACL entries for principals of a peer to the purged entries (table purged_acl_entries). It
// returns the number of moved entries.
func (tx *Tx) PurgeACLEntries(ctx context.Context, system keyserver.SystemID) (int, error) {
	return tx.moveACLEntries(ctx, "acl_entries", "purged_acl_entries", system, func(k *storedKey) { k.purged, k.entries = moved(k.purged, k.entries, system) })
}

// RestoreACLEntries moves purged entries back and returns how many. If a
// principal has a newer entry in an ACL, the purged entry is dropped.
func (tx *Tx) RestoreACLEntries(ctx context.Context, system keyserver.SystemID) (int, error) {
	return tx.moveACLEntries(ctx, "purged_acl_entries", "acl_entries", system, func(k *storedKey) { k.entries, k.purged = moved(k.entries, k.purged, system) })
}

// moved moves the entries of a peer from one list to another. It drops an entry if the list into already has an entry
// of the same principal.
func moved(into, from []keyserver.ACLEntry, system keyserver.SystemID) (added, left []keyserver.ACLEntry) {
	for _, e := range from {
		switch {
		case e.Principal.System != system:
			left = append(left, e)
		case !slices.ContainsFunc(into, func(other keyserver.ACLEntry) bool { return other.Principal == e.Principal }):
			into = append(into, e)
		}
	}
	return into, left
}

// moveACLEntries moves the entries of a peer between two tables. The names of the tables must be constants, because
// they become part of the statements.
func (tx *Tx) moveACLEntries(ctx context.Context, from, into string, system keyserver.SystemID, move func(k *storedKey)) (int, error) {
	err := tx.changeKeys(ctx, move, `SELECT k.id FROM stored_keys k
		WHERE k.acl_id IN (SELECT DISTINCT acl_id FROM `+from+` WHERE system_id = $1)`, int64(system))
	if err != nil {
		return 0, err
	}
	moved, err := tx.sql.Exec(ctx, `INSERT INTO `+into+` (`+aclEntryColumns+`) SELECT `+aclEntryColumns+` FROM `+from+`
		WHERE system_id = $1 ON CONFLICT (acl_id, system_id, principal_id) DO NOTHING`, int64(system))
	if err != nil {
		return 0, err
	}
	if _, err := tx.sql.Exec(ctx, `DELETE FROM `+from+` WHERE system_id = $1`, int64(system)); err != nil {
		return 0, err
	}
	return int(moved), nil
}

// recordKeys records a change of each key, or one change with the zero id if
// there are too many.
func (tx *Tx) recordKeys(keys []keyserver.ID) {
	if len(keys) > maxKeyChanges {
		keys = []keyserver.ID{{}}
	}
	for _, key := range keys {
		tx.changes.Record(keyserver.ChangeKey, key, keyserver.Updated)
	}
}

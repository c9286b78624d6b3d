package sqlstore

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// ACL reads the ACL of a key, with entries sorted by principal. It does not set Link.
// It returns ErrNotFound if the key does not exist.
func (r reads) ACL(ctx context.Context, key keyserver.ID) (keyserver.ACL, error) {
	_, acl, err := r.KeyWithACL(ctx, key)
	return acl, err
}

// PutACLEntry stores an entry in the ACL e.ACL. It replaces an existing entry of the principal, but keeps its id. It
// returns ErrNotFound if the ACL does not exist.
func (tx *Tx) PutACLEntry(ctx context.Context, e keyserver.ACLEntry) error {
	key, err := tx.keyOfACL(ctx, e.ACL)
	if err != nil {
		return err
	}
	if err := tx.changeKey(ctx, key, func(k *storedKey) { k.put(e) }); err != nil {
		return err
	}
	if err := tx.putACLEntry(ctx, e); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeKey, key, keyserver.Updated)
	return nil
}

func (tx *Tx) putACLEntry(ctx context.Context, e keyserver.ACLEntry) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO acl_entries
			(id, acl_id, system_id, principal_id, rights, max_usage, used, user_right, start_stamp, end_stamp)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (acl_id, system_id, principal_id) DO UPDATE SET rights = excluded.rights, max_usage = excluded.max_usage,
			used = excluded.used, user_right = excluded.user_right, start_stamp = excluded.start_stamp, end_stamp = excluded.end_stamp`,
		e.ID[:], e.ACL[:], int64(e.Principal.System), e.Principal.ID[:], int64(e.Rights), e.MaxUsage, e.Used, e.UserRight, e.Start[:], e.End[:])
	return err
}

// DeleteACLEntry removes the entry of a principal.
func (tx *Tx) DeleteACLEntry(ctx context.Context, acl keyserver.ID, p keyserver.PrincipalRef) error {
	key, err := tx.keyOfACL(ctx, acl)
	if err != nil {
		return err
	}
	err = tx.changeKey(ctx, key, func(k *storedKey) {
		k.entries = slices.DeleteFunc(k.entries, func(e keyserver.ACLEntry) bool { return e.Principal == p })
	})
	if err != nil {
		return err
	}
	err = tx.sql.ExecOne(ctx, `DELETE FROM acl_entries WHERE acl_id = $1 AND system_id = $2 AND principal_id = $3`,
		acl[:], int64(p.System), p.ID[:])
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeKey, key, keyserver.Updated)
	return nil
}

// sharedEntries selects the entries in which a use of the entry $1 counts: the entries of its principal in the ACLs of
// all keys of its lineage. CROSS JOIN makes SQLite scan the lineage and not all entries of the principal.
const sharedEntries = `WITH named AS (SELECT e.system_id, e.principal_id, COALESCE(k.lineage, k.id) AS line
		FROM acl_entries e CROSS JOIN stored_keys k WHERE e.id = $1 AND k.acl_id = e.acl_id)
	SELECT e.id, k.id AS key_id, e.used, e.max_usage FROM named CROSS JOIN stored_keys k CROSS JOIN acl_entries e
		WHERE (k.id = named.line OR k.lineage = named.line)
			AND e.acl_id = k.acl_id AND e.system_id = named.system_id AND e.principal_id = named.principal_id`

type sharedEntry struct {
	id, key        keyserver.ID
	used, maxUsage int64
}

func (e sharedEntry) limited() bool { return e.maxUsage >= 0 }

func (e sharedEntry) spent(used int64) bool { return e.limited() && used >= e.maxUsage }

// UseACLEntry counts one use and returns whether the entry still allowed the use. An entry without a limit allows every
// use, and its uses are not counted. A limit applies to the key lineage: each entry of the principal in an ACL of the
// lineage counts the use. UseACLEntry records a change only of a key whose entry has no uses left after this use.
func (tx *Tx) UseACLEntry(ctx context.Context, entry keyserver.ID) (bool, error) {
	shared, err := tx.sharedEntries(ctx, entry)
	if err != nil {
		return false, err
	}
	named := shared[slices.IndexFunc(shared, func(e sharedEntry) bool { return e.id == entry })]
	if !named.limited() {
		return true, nil
	}
	used := usesOf(shared)
	if named.spent(used) {
		return false, nil
	}
	return true, tx.setUses(ctx, entry, shared, used+1)
}

// usesOf returns the number of spent uses: the highest count of an entry. The counts can differ if uses were counted
// before the entries shared them.
func usesOf(shared []sharedEntry) (used int64) {
	for _, e := range shared {
		if e.limited() {
			used = max(used, e.used)
		}
	}
	return used
}

// UsesOfLineage returns the spent uses of each principal that has an entry with a limit in an
// ACL of a lineage. first is the first key of the lineage.
func (r reads) UsesOfLineage(ctx context.Context, first keyserver.ID) (map[keyserver.PrincipalRef]int64, error) {
	spent := map[keyserver.PrincipalRef]int64{}
	err := r.sql.Each(ctx, `SELECT e.system_id, e.principal_id, MAX(e.used) FROM stored_keys k CROSS JOIN acl_entries e
		WHERE (k.id = $1 OR k.lineage = $1) AND e.acl_id = k.acl_id AND e.max_usage >= 0 GROUP BY e.system_id, e.principal_id`,
		[]any{first[:]}, func(row sqldb.Scanner) error {
			var system, used int64
			var p keyserver.PrincipalRef
			err := row.Scan(&system, sqldb.IntoID(&p.ID), &used)
			p.System = keyserver.SystemID(system) //nolint:gosec // as it was stored
			spent[p] = used
			return err
		})
	return spent, err
}

// RestartUses sets the spent uses of an entry to 0, and of all entries that share its uses.
func (tx *Tx) RestartUses(ctx context.Context, entry keyserver.ID) error {
	shared, err := tx.sharedEntries(ctx, entry)
	if err != nil {
		return err
	}
	return tx.setUses(ctx, entry, shared, 0)
}

// sharedEntries reads an entry and the entries that share its uses. It returns ErrNotFound
// if the entry does not exist.
func (tx *Tx) sharedEntries(ctx context.Context, entry keyserver.ID) (shared []sharedEntry, err error) {
	err = tx.sql.Each(ctx, sharedEntries, []any{entry[:]}, func(row sqldb.Scanner) error {
		var e sharedEntry
		err := row.Scan(sqldb.IntoID(&e.id), sqldb.IntoID(&e.key), &e.used, &e.maxUsage)
		shared = append(shared, e)
		return err
	})
	if err == nil && len(shared) == 0 {
		err = sqldb.ErrNotFound
	}
	return shared, err
}

// setUses stores the number of spent uses. It records a change of each key whose entry
// becomes exhausted or usable again.
func (tx *Tx) setUses(ctx context.Context, entry keyserver.ID, shared []sharedEntry, used int64) error {
	was := usesOf(shared)
	for _, e := range shared {
		if e.spent(was) != e.spent(used) {
			tx.changes.Record(keyserver.ChangeKey, e.key, keyserver.Updated)
		}
	}
	_, err := tx.sql.Exec(ctx, `UPDATE acl_entries SET used = $2 WHERE max_usage >= 0 AND id IN (SELECT id FROM (`+sharedEntries+`) AS shared)`, entry[:], used)
	return err
}

func (tx *Tx) keyOfACL(ctx context.Context, acl keyserver.ID) (keyserver.ID, error) {
	var key keyserver.ID
	err := tx.sql.Row(ctx, `SELECT id FROM stored_keys WHERE acl_id = $1`, []any{acl[:]}, sqldb.IntoID(&key))
	return key, err
}

package sqlstore

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// ACL reads the access control list of a key, its entries sorted by principal.
// Link is left to the caller, who knows the system id. ErrNotFound where there
// is no such key.
func (r reads) ACL(ctx context.Context, key keyserver.ID) (keyserver.ACL, error) {
	acl := keyserver.ACL{Entries: []keyserver.ACLEntry{}}
	// The key's own row comes first, so that a list without entries differs
	// from a key that does not exist.
	err := r.each(ctx, `SELECT 0 AS part, k.acl_id AS id, 0 AS system_id, k.acl_id AS principal_id, 0 AS rights, 0 AS max_usage, 0 AS used,
			0 AS user_right, k.acl_id AS start_stamp, k.acl_id AS end_stamp FROM stored_keys k WHERE k.id = $1
		UNION ALL SELECT 1, e.id, e.system_id, e.principal_id, e.rights, e.max_usage, e.used, e.user_right, e.start_stamp, e.end_stamp
			FROM stored_keys k JOIN acl_entries e ON e.acl_id = k.acl_id WHERE k.id = $1
		ORDER BY part, system_id, principal_id`, []any{key[:]}, func(row scanner) error {
		var part int
		var e keyserver.ACLEntry
		if err := row.Scan(&part, intoID(&e.ID), &e.Principal.System, intoID(&e.Principal.ID), &e.Rights, &e.MaxUsage, &e.Used,
			&e.UserRight, intoStamp(&e.Start), intoStamp(&e.End)); err != nil {
			return err
		}
		if part == 0 {
			acl.ID = e.ID
			return nil
		}
		e.ACL = acl.ID
		acl.Entries = append(acl.Entries, e)
		return nil
	})
	if err == nil && acl.ID.IsZero() {
		err = ErrNotFound
	}
	if err != nil {
		return keyserver.ACL{}, err
	}
	return acl, nil
}

// PutACLEntry stores an entry in the list that e.ACL names. Where the
// principal has one already, all of it but the id is replaced. ErrNotFound
// where there is no such list.
func (tx *Tx) PutACLEntry(ctx context.Context, e keyserver.ACLEntry) error {
	key, err := tx.keyOfACL(ctx, e.ACL)
	if err != nil {
		return err
	}
	if err := tx.putACLEntry(ctx, e); err != nil {
		return err
	}
	tx.record(keyserver.ChangeKey, key, keyserver.Updated)
	return nil
}

func (tx *Tx) putACLEntry(ctx context.Context, e keyserver.ACLEntry) error {
	_, err := tx.exec(ctx, `INSERT INTO acl_entries
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
	err = tx.execOne(ctx, `DELETE FROM acl_entries WHERE acl_id = $1 AND system_id = $2 AND principal_id = $3`,
		acl[:], int64(p.System), p.ID[:])
	if err != nil {
		return err
	}
	tx.record(keyserver.ChangeKey, key, keyserver.Updated)
	return nil
}

// UseACLEntry counts one grant and answers whether the entry still allowed
// it. An entry without a limit always does, and is not counted. A change is
// recorded only for the grant that uses the entry up: until then it says the
// same to everybody.
func (tx *Tx) UseACLEntry(ctx context.Context, entry keyserver.ID) (bool, error) {
	var acl keyserver.ID
	var used, maxUsage int64
	hit := false
	err := tx.each(ctx, `UPDATE acl_entries SET used = used + 1 WHERE id = $1 AND used < max_usage
		RETURNING acl_id, used, max_usage`, []any{entry[:]}, func(row scanner) error {
		hit = true
		return row.Scan(intoID(&acl), &used, &maxUsage)
	})
	if err != nil {
		return false, err
	}
	if !hit {
		err := tx.row(ctx, `SELECT max_usage FROM acl_entries WHERE id = $1`, []any{entry[:]}, &maxUsage)
		return err == nil && maxUsage < 0, err
	}
	if used == maxUsage {
		key, err := tx.keyOfACL(ctx, acl)
		if err != nil {
			return false, err
		}
		tx.record(keyserver.ChangeKey, key, keyserver.Updated)
	}
	return true, nil
}

func (tx *Tx) keyOfACL(ctx context.Context, acl keyserver.ID) (keyserver.ID, error) {
	var key keyserver.ID
	err := tx.row(ctx, `SELECT id FROM stored_keys WHERE acl_id = $1`, []any{acl[:]}, intoID(&key))
	return key, err
}

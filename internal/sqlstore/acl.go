package sqlstore

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// ACL reads the access control list of a key, its entries sorted by principal.
// Link is left to the caller, who knows the system id. ErrNotFound where there
// is no such key.
func (r reads) ACL(ctx context.Context, key keyserver.ID) (keyserver.ACL, error) {
	_, acl, err := r.KeyWithACL(ctx, key)
	return acl, err
}

// PutACLEntry stores an entry in the list that e.ACL names. Where the
// principal has one already, all of it but the id is replaced. ErrNotFound
// where there is no such list.
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
	err = tx.changeKey(ctx, key, func(k *storedKey) {
		k.entries = slices.DeleteFunc(k.entries, func(e keyserver.ACLEntry) bool { return e.Principal == p })
	})
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

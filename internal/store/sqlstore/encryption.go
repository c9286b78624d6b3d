package sqlstore

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// EncryptionsLeft returns how many of limit encryptions with a key are not reserved yet.
func (r reads) EncryptionsLeft(ctx context.Context, key keyserver.ID, limit int64) (int64, error) {
	var reserved int64
	err := r.sql.Row(ctx, `SELECT coalesce(max(reserved), 0) FROM key_encryptions WHERE key_id = $1`, []any{key[:]}, &reserved)
	return max(limit-reserved, 0), err
}

// ReserveEncryptions reserves up to n of the encryptions that EncryptionsLeft counts. It returns the number of reserved
// encryptions, and the number that is left after that. Only the caller's replica may use reserved encryptions.
func (tx *Tx) ReserveEncryptions(ctx context.Context, key keyserver.ID, n, limit int64) (got, left int64, err error) {
	_, err = tx.sql.Exec(ctx, `INSERT INTO key_encryptions (key_id, reserved) VALUES ($1, 0) ON CONFLICT (key_id) DO NOTHING`, key[:])
	if err != nil {
		return 0, 0, err
	}
	var reserved int64
	if err := tx.sql.Row(ctx, `SELECT reserved FROM key_encryptions WHERE key_id = $1`, []any{key[:]}, &reserved); err != nil {
		return 0, 0, err
	}
	got = max(min(n, limit-reserved), 0)
	if got == 0 {
		return 0, 0, nil
	}
	err = tx.sql.ExecOne(ctx, `UPDATE key_encryptions SET reserved = $1 WHERE key_id = $2`, reserved+got, key[:])
	return got, limit - reserved - got, err
}

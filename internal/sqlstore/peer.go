package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// forgottenPerCall is how many calls of peers are forgotten for each one that
// is remembered, at most. It is more than one, so that their number follows
// what is still worth remembering.
const forgottenPerCall = 8

// PeerCallKnown reports whether a call of a peer took effect before.
func (r reads) PeerCallKnown(ctx context.Context, key keyserver.CallKey) (bool, error) {
	return r.found(ctx, `SELECT 1 FROM peer_calls WHERE call_key = $1`, key[:])
}

// RememberPeerCall notes, in the transaction of its effect, that a call took
// effect, and forgets some that nobody will repeat any more at now.
func (tx *Tx) RememberPeerCall(ctx context.Context, key keyserver.CallKey, now, until time.Time) error {
	if _, err := tx.exec(ctx, `INSERT INTO peer_calls (call_key, expires) VALUES ($1, $2)`, key[:], until.UnixMicro()); err != nil {
		return err
	}
	_, err := tx.exec(ctx, `DELETE FROM peer_calls WHERE call_key IN (
		SELECT call_key FROM peer_calls WHERE expires <= $1 LIMIT $2)`, now.UnixMicro(), forgottenPerCall)
	return err
}

// openEntries are the entries of a principal whose time has not ended at $3.
// Stamps are big-endian, so their bytes are in the order of the times.
const openEntries = ` FROM acl_entries e WHERE e.system_id = $1 AND e.principal_id = $2 AND (e.end_stamp = $4 OR e.end_stamp > $3)`

// HasOpenACLEntries reports whether a principal has entries that have not
// ended at a time.
func (r reads) HasOpenACLEntries(ctx context.Context, p keyserver.PrincipalRef, at keyserver.Stamp) (bool, error) {
	return r.found(ctx, `SELECT 1`+openEntries+` LIMIT 1`, int64(p.System), p.ID[:], at[:], make([]byte, len(at)))
}

// HasACLEntries reports whether a principal has entries at all.
func (r reads) HasACLEntries(ctx context.Context, p keyserver.PrincipalRef) (bool, error) {
	return r.found(ctx, `SELECT 1 FROM acl_entries WHERE system_id = $1 AND principal_id = $2 LIMIT 1`, int64(p.System), p.ID[:])
}

func (r reads) found(ctx context.Context, query string, args ...any) (bool, error) {
	var one int
	err := r.row(ctx, query, args, &one)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// CloseACLEntries ends the entries of a principal at a time, unless they have
// ended before, and answers how many it ended.
func (tx *Tx) CloseACLEntries(ctx context.Context, p keyserver.PrincipalRef, at keyserver.Stamp) (int, error) {
	args := []any{int64(p.System), p.ID[:], at[:], make([]byte, len(at))}
	keys, err := tx.ids(ctx, `SELECT k.id FROM stored_keys k WHERE k.acl_id IN (SELECT e.acl_id`+openEntries+`) LIMIT $5`,
		append(args, maxKeyChanges+1)...)
	if err != nil {
		return 0, err
	}
	n, err := tx.exec(ctx, `UPDATE acl_entries SET end_stamp = $3 WHERE id IN (SELECT e.id`+openEntries+`)`, args...)
	if err != nil {
		return 0, err
	}
	tx.recordKeys(keys)
	return int(n), nil
}

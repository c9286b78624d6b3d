package sqlstore

import (
	"bytes"
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Bounds of what is remembered of the calls of peers.
const (
	// forgottenPerCall is how many of a peer are looked at, the oldest, and
	// forgotten for each one that is remembered. It is more than one, so that
	// their number follows what is still worth remembering.
	forgottenPerCall = 8
	// MaxPeerCalls is how many calls of one peer are remembered: its latest. At a
	// thousand counted uses a second they go back 16 seconds, and a call is
	// repeated within the 10 that --peer-timeout allows it.
	MaxPeerCalls = 16384
)

// PeerCallKnown reports whether a call of a peer took effect before, as far as
// that matters at now.
func (r reads) PeerCallKnown(ctx context.Context, key keyserver.CallKey, now time.Time) (bool, error) {
	return r.sql.Found(ctx, `SELECT 1 FROM peer_calls WHERE call_key = $1 AND expires > $2`, key[:], now.UnixMicro())
}

// RememberPeerCall notes, in the transaction of its effect, that a call took
// effect: ErrDuplicate where it is known at now. It forgets the oldest of the
// peer that have expired, or are more than MaxPeerCalls. A call that is forgotten too early takes effect again if it is repeated, and
// is counted again: no limit is passed by that.
func (tx *Tx) RememberPeerCall(ctx context.Context, from keyserver.SystemID, key keyserver.CallKey, now, until time.Time) error {
	var seq int64
	known := true
	err := tx.sql.Each(ctx, `INSERT INTO peer_calls (call_key, system_id, seq, expires)
		SELECT $1, $2, coalesce(max(seq), 0) + 1, $3 FROM peer_calls WHERE system_id = $2
		ON CONFLICT (call_key) DO UPDATE SET seq = excluded.seq, expires = excluded.expires WHERE peer_calls.expires <= $4
		RETURNING seq`, []any{key[:], int64(from), until.UnixMicro(), now.UnixMicro()}, func(row sqldb.Scanner) error {
		known = false
		return row.Scan(&seq)
	})
	switch {
	case err != nil:
		return err
	case known:
		return sqldb.ErrDuplicate
	}
	_, err = tx.sql.Exec(ctx, `DELETE FROM peer_calls WHERE system_id = $1
		AND seq < (SELECT min(seq) FROM peer_calls WHERE system_id = $1) + $2 AND (seq <= $3 OR expires <= $4)`,
		int64(from), forgottenPerCall, seq-MaxPeerCalls, now.UnixMicro())
	return err
}

// openEntries are the entries of a principal whose time has not ended at $3.
// Stamps are big-endian, so their bytes are in the order of the times.
const openEntries = ` FROM acl_entries e WHERE e.system_id = $1 AND e.principal_id = $2 AND (e.end_stamp = $4 OR e.end_stamp > $3)`

// HasOpenACLEntries reports whether a principal has entries that have not
// ended at a time.
func (r reads) HasOpenACLEntries(ctx context.Context, p keyserver.PrincipalRef, at keyserver.Stamp) (bool, error) {
	return r.sql.Found(ctx, `SELECT 1`+openEntries+` LIMIT 1`, int64(p.System), p.ID[:], at[:], make([]byte, len(at)))
}

// HasACLEntries reports whether a principal has entries at all.
func (r reads) HasACLEntries(ctx context.Context, p keyserver.PrincipalRef) (bool, error) {
	return r.sql.Found(ctx, `SELECT 1 FROM acl_entries WHERE system_id = $1 AND principal_id = $2 LIMIT 1`, int64(p.System), p.ID[:])
}

// CloseACLEntries ends the entries of a principal at a time, unless they have
// ended before, and answers how many it ended.
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

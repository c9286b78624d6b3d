package trustrows

import (
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Limits of the stored calls of peers.
const (
	// deletedPerCall is how many of a peer's oldest calls each new call checks, and deletes if they are stale. It is
	// more than one, so that the number of rows decreases when there are fewer calls.
	deletedPerCall = 8
	// MaxPeerCalls is how many of the latest calls of a peer are stored. That is enough for 16 seconds with a thousand
	// calls per second. A peer repeats a call within 10 seconds (--peer-timeout).
	MaxPeerCalls = 16384
)

// PeerCallKnown reports whether a call of a peer is recorded and has not expired at now.
func (r Reads) PeerCallKnown(ctx context.Context, key keyserver.CallKey, now time.Time) (bool, error) {
	return r.sql.Found(ctx, `SELECT 1 FROM peer_calls WHERE call_key = $1 AND expires > $2`, key[:], now.UnixMicro())
}

// RecordPeerCall records a call in the transaction of its effect. It returns ErrDuplicate if the call is recorded and
// has not expired at now. It deletes the oldest calls of the peer that have expired or exceed MaxPeerCalls. If a call
// was deleted too early and is repeated, it takes effect and is counted again. So no limit is exceeded.
func (tx Writes) RecordPeerCall(ctx context.Context, from keyserver.SystemID, key keyserver.CallKey, now, until time.Time) error {
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
		int64(from), deletedPerCall, seq-MaxPeerCalls, now.UnixMicro())
	return err
}

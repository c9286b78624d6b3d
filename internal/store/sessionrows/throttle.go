package sessionrows

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
)

// A bucket gets one token each interval, up to burst tokens. The bucket is stored as the time at which it will be full
// again (the generic cell rate algorithm of ITU-T I.371). So taking a token is one statement, and a full bucket needs
// no row.

// Throttle stores token buckets, which limit logins, in a database.
type Throttle struct{ db *sqldb.DB }

// NewThrottle returns the Throttle of a database.
func NewThrottle(db *sqldb.DB) Throttle { return Throttle{db} }

// TakeToken takes a token from a bucket and returns 0. If the bucket is empty, it
// returns the time to wait. Concurrent calls on all replicas never take more
// tokens than there are.
func (t Throttle) TakeToken(ctx context.Context, bucket [32]byte, now time.Time, interval time.Duration, burst int) (time.Duration, error) {
	each, capacity := interval.Microseconds(), interval.Microseconds()*int64(burst)
	taken, err := t.db.ExecCommitted(ctx, `INSERT INTO login_buckets (key, full_at) VALUES ($1, CAST($2 AS BIGINT) + CAST($3 AS BIGINT))
		ON CONFLICT (key) DO UPDATE
			SET full_at = CASE WHEN login_buckets.full_at > CAST($2 AS BIGINT) THEN login_buckets.full_at ELSE CAST($2 AS BIGINT) END + CAST($3 AS BIGINT)
			WHERE login_buckets.full_at + CAST($3 AS BIGINT) <= CAST($2 AS BIGINT) + CAST($4 AS BIGINT)`,
		bucket[:], now.UnixMicro(), each, capacity)
	if err != nil || taken == 1 {
		return 0, err
	}
	var full time.Time
	err = t.db.Row(ctx, `SELECT full_at FROM login_buckets WHERE key = $1`, []any{bucket[:]}, sqldb.IntoTime(&full))
	if errors.Is(err, sqldb.ErrNotFound) { // the bucket was deleted during the call
		return interval, nil
	}
	return max(full.Add(interval).Sub(now)-time.Duration(burst)*interval, time.Millisecond), err
}

// ReturnToken returns a token to a bucket.
func (t Throttle) ReturnToken(ctx context.Context, bucket [32]byte, interval time.Duration) error {
	_, err := t.db.ExecCommitted(ctx, `UPDATE login_buckets SET full_at = full_at - CAST($1 AS BIGINT) WHERE key = $2`, interval.Microseconds(), bucket[:])
	return err
}

// KnownOrigin returns the expiry time of a known origin, or the zero time if it is unknown. The
// origin is a digest of login method, name and network.
func (r Reads) KnownOrigin(ctx context.Context, origin [32]byte) (until time.Time, err error) {
	err = r.sql.Row(ctx, `SELECT until FROM known_origins WHERE key = $1`, []any{origin[:]}, sqldb.IntoTime(&until))
	if errors.Is(err, sqldb.ErrNotFound) {
		return time.Time{}, nil
	}
	return until, err
}

// PutKnownOrigin stores a known origin with its expiry time.
func (tx Writes) PutKnownOrigin(ctx context.Context, origin [32]byte, until time.Time) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO known_origins (key, until) VALUES ($1, $2)
		ON CONFLICT (key) DO UPDATE SET until = excluded.until`, origin[:], until.UnixMicro())
	return err
}

// DeleteStaleLogins deletes up to limit full buckets, and up to limit expired
// origins.
func (tx Writes) DeleteStaleLogins(ctx context.Context, now time.Time, limit int) error {
	for _, text := range []string{
		`DELETE FROM login_buckets WHERE key IN (SELECT key FROM login_buckets WHERE full_at <= $1 LIMIT $2)`,
		`DELETE FROM known_origins WHERE key IN (SELECT key FROM known_origins WHERE until <= $1 LIMIT $2)`,
	} {
		if _, err := tx.sql.Exec(ctx, text, now.UnixMicro(), limit); err != nil {
			return err
		}
	}
	return nil
}

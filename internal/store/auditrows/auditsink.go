package auditrows

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
)

// AuditSinkSent returns the last row that was delivered to a sink, or 0 if there is none.
func (r Reads) AuditSinkSent(ctx context.Context, name string) (int64, error) {
	var sent int64
	err := r.sql.Row(ctx, `SELECT coalesce(max(sent), 0) FROM audit_sinks WHERE name = $1`, []any{name}, &sent)
	return sent, err
}

// ClaimAuditSink claims a sink for a holder from now for the duration lasts. It returns the last delivered row, or
// false if another holder has the sink. A new sink begins with the row first. An existing claim that ends later than
// the new claim is invalid and is replaced.
func (t *AuditLog) ClaimAuditSink(ctx context.Context, name string, holder []byte, first int64, now time.Time, lasts time.Duration) (sent int64, held bool, err error) {
	until := now.Add(lasts).UnixMicro()
	n, err := t.db.ExecCommitted(ctx, `INSERT INTO audit_sinks (name, sent, holder, until) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
			WHERE audit_sinks.holder = excluded.holder OR audit_sinks.until <= $5 OR audit_sinks.until > excluded.until`,
		name, first-1, holder, until, now.UnixMicro())
	if err != nil || n != 1 {
		return 0, false, err
	}
	err = t.db.Row(ctx, `SELECT sent FROM audit_sinks WHERE name = $1 AND holder = $2`, []any{name, holder}, &sent)
	if errors.Is(err, sqldb.ErrNotFound) {
		return 0, false, nil // another holder claimed the sink during the call
	}
	return sent, err == nil, err
}

// MoveAuditSink records that the rows from+1 to to were delivered to a sink. It returns false if another holder has the
// sink, or if the last delivered row of the sink is not the row from.
func (t *AuditLog) MoveAuditSink(ctx context.Context, name string, holder []byte, from, to int64) (bool, error) {
	n, err := t.db.ExecCommitted(ctx, `UPDATE audit_sinks SET sent = $1 WHERE name = $2 AND holder = $3 AND sent = $4`, to, name, holder, from)
	return n == 1, err
}

// ReleaseAuditSink ends the claim of a holder on a sink.
func (t *AuditLog) ReleaseAuditSink(ctx context.Context, name string, holder []byte) error {
	_, err := t.db.ExecCommitted(ctx, `UPDATE audit_sinks SET until = 0 WHERE name = $1 AND holder = $2`, name, holder)
	return err
}

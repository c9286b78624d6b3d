package sqlstore

import (
	"context"
	"time"
)

// Time returns the time by the clock of a shared database, or otherwise the time of
// the newest audit row. It is zero if there is no row.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	if s.Shared() {
		var micros int64
		err := s.db.Row(ctx, `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`, nil, &micros)
		return time.UnixMicro(micros).UTC(), err
	}
	end, err := s.AuditEnd(ctx)
	if err != nil || end == 0 {
		return time.Time{}, err
	}
	newest, err := s.AuditRange(ctx, end-1, end, 1)
	if err != nil || len(newest) == 0 {
		return time.Time{}, err
	}
	return newest[0].Time, nil
}

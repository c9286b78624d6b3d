package sqlstore

import (
	"context"
	"time"
)

// Time returns the current time of a shared database. For an embedded database, it
// returns the time of the newest audit row, or zero if there is none.
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

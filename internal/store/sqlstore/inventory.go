package sqlstore

import (
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Inventory has counts of the objects in the database.
type Inventory struct {
	Keys     map[keyserver.KeyState]int64
	Sessions map[keyserver.SessionKind]int64 // live sessions only
	// Certificates counts the certificates of principals and peers that are not replaced: how many
	// expire before each of the requested times. The last element is the total number.
	Certificates []int64
	Peers        int64
}

// Inventory counts the objects in the database. It scans complete tables. It omits sessions that are
// not live at now, or were not used for the duration idle. ends are the times for Certificates.
func (r reads) Inventory(ctx context.Context, now time.Time, idle time.Duration, ends []time.Time) (Inventory, error) {
	i := Inventory{Keys: map[keyserver.KeyState]int64{}}
	err := r.sql.Each(ctx, `SELECT state, count(*) FROM stored_keys GROUP BY state`, nil, func(row sqldb.Scanner) error {
		var state keyserver.KeyState
		var n int64
		err := row.Scan(&state, &n)
		i.Keys[state] = n
		return err
	})
	if err != nil {
		return i, err
	}
	i.Sessions, err = r.SessionCountByKind(ctx, now, idle)
	if err != nil {
		return i, err
	}
	for _, end := range ends {
		var n int64
		if err := r.sql.Row(ctx, `SELECT count(*) FROM certificates WHERE status IN ($1, $2) AND not_after < $3`,
			[]any{int64(keyserver.StatusRegular), int64(keyserver.StatusTrustedServer), end.UnixMicro()}, &n); err != nil {
			return i, err
		}
		i.Certificates = append(i.Certificates, n)
	}
	var all int64
	if err := r.sql.Row(ctx, `SELECT count(*) FROM certificates WHERE status IN ($1, $2)`,
		[]any{int64(keyserver.StatusRegular), int64(keyserver.StatusTrustedServer)}, &all); err != nil {
		return i, err
	}
	i.Certificates = append(i.Certificates, all)
	return i, r.sql.Row(ctx, `SELECT count(*) FROM trusted_servers`, nil, &i.Peers)
}

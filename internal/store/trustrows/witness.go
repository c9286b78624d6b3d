package trustrows

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const witnessedLogQuery = `SELECT origin, key, system_id, witness_key, size, root, seen_at, conflict, conflict_at, mac FROM witnessed_logs`

// WitnessedLogs reads every audit log that this key server has witnessed, in the order of origins.
func (r Reads) WitnessedLogs(ctx context.Context) ([]keyserver.WitnessedLog, error) {
	return r.witnessedLogs(ctx, witnessedLogQuery+` ORDER BY origin`)
}

// WitnessedLog reads one witnessed log.
func (r Reads) WitnessedLog(ctx context.Context, origin string) (keyserver.WitnessedLog, error) {
	list, err := r.witnessedLogs(ctx, witnessedLogQuery+` WHERE origin = $1`, origin)
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.WitnessedLog{}, err
	}
	return list[0], nil
}

func (r Reads) witnessedLogs(ctx context.Context, query string, args ...any) ([]keyserver.WitnessedLog, error) {
	list := []keyserver.WitnessedLog{}
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var l keyserver.WitnessedLog
		var mac []byte
		if err := row.Scan(&l.Origin, &l.Key, &l.System, &l.WitnessKey, &l.Size, sqldb.Untrusted(l.Root[:]), sqldb.IntoTime(&l.SeenAt), &l.Conflict, sqldb.IntoTime(&l.ConflictAt), &mac); err != nil {
			return err
		}
		list = append(list, l)
		return r.sql.CheckMAC(rowmac.WitnessedLog(l), mac)
	})
	return list, err
}

// PutWitnessedLog stores a witnessed log and replaces an earlier record.
func (tx Writes) PutWitnessedLog(ctx context.Context, l keyserver.WitnessedLog) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO witnessed_logs (origin, key, system_id, witness_key, size, root, seen_at, conflict, conflict_at, mac)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			ON CONFLICT (origin) DO UPDATE SET key = excluded.key, system_id = excluded.system_id, witness_key = excluded.witness_key, size = excluded.size,
				root = excluded.root, seen_at = excluded.seen_at, conflict = excluded.conflict, conflict_at = excluded.conflict_at, mac = excluded.mac`,
		l.Origin, l.Key, int64(l.System), l.WitnessKey, l.Size, l.Root[:], l.SeenAt.UnixMicro(), string(l.Conflict), l.ConflictAt.UnixMicro(),
		tx.sql.MAC(rowmac.WitnessedLog(l)))
	return err
}

func (tx Writes) deleteWitnessedLogs(ctx context.Context, system keyserver.SystemID) error {
	_, err := tx.sql.Exec(ctx, `DELETE FROM witnessed_logs WHERE system_id = $1`, int64(system))
	return err
}

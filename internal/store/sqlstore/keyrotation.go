package sqlstore

import (
	"context"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// KeyRotation is the rotation schedule of a key lineage.
type KeyRotation struct {
	Lineage keyserver.ID // the first key of the lineage
	keyserver.KeyRotation
	DueAt time.Time // when the next rotation step of the lineage is due; zero: never
}

func (k KeyRotation) row() *rowmac.Row { return rowmac.KeyRotation(k.Lineage, k.KeyRotation, k.DueAt) }

const selectKeyRotation = `SELECT lineage, every_days, verify_days, destroy_days, due_at, mac FROM key_rotations `

var keyRotationsOf = selectKeyRotation + `WHERE lineage IN (` + sqldb.Numbered() + `)`

func (r reads) keyRotations(ctx context.Context, query string, args ...any) ([]KeyRotation, error) {
	var list []KeyRotation
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var k KeyRotation
		var due int64
		var mac []byte
		if err := row.Scan(sqldb.IntoID(&k.Lineage), &k.Every, &k.VerifyOnly, &k.DestroyAfter, &due, &mac); err != nil {
			return err
		}
		k.DueAt = keyserver.FromMicros(due)
		list = append(list, k)
		return r.sql.CheckMAC(k.row(), mac)
	})
	return list, err
}

// KeyRotation reads the rotation schedule of a lineage. It returns ErrNotFound if
// the lineage has none.
func (r reads) KeyRotation(ctx context.Context, lineage keyserver.ID) (KeyRotation, error) {
	list, err := r.keyRotations(ctx, selectKeyRotation+`WHERE lineage = $1`, lineage[:])
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return KeyRotation{}, err
	}
	return list[0], nil
}

// KeyRotations reads the rotation schedules of lineages. It omits lineages without a schedule.
func (r reads) KeyRotations(ctx context.Context, lineages []keyserver.ID) (map[keyserver.ID]keyserver.KeyRotation, error) {
	found := map[keyserver.ID]keyserver.KeyRotation{}
	for part := range slices.Chunk(keyserver.NormalizeIDs(lineages), sqldb.LookupSize) {
		list, err := r.keyRotations(ctx, keyRotationsOf, sqldb.Lookup(part)...)
		if err != nil {
			return nil, err
		}
		for _, k := range list {
			found[k.Lineage] = k.KeyRotation
		}
	}
	return found, nil
}

// LineagesDue returns up to limit lineages with a rotation step that is due at or before a time.
func (r reads) LineagesDue(ctx context.Context, by time.Time, limit int) ([]keyserver.ID, error) {
	return r.sql.IDs(ctx, `SELECT lineage FROM key_rotations WHERE due_at > 0 AND due_at <= $1 ORDER BY due_at LIMIT $2`, by.UnixMicro(), limit)
}

// PutKeyRotation stores the rotation schedule of a lineage. It records a change of
// the first key, because that key's metadata includes the schedule.
func (tx *Tx) PutKeyRotation(ctx context.Context, k KeyRotation) error {
	tx.changes.Record(keyserver.ChangeKey, k.Lineage, keyserver.Updated)
	return tx.PlanKeyRotation(ctx, k)
}

// PlanKeyRotation is PutKeyRotation without a recorded change.
func (tx *Tx) PlanKeyRotation(ctx context.Context, k KeyRotation) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO key_rotations (lineage, every_days, verify_days, destroy_days, due_at, mac) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (lineage) DO UPDATE SET every_days = excluded.every_days, verify_days = excluded.verify_days, destroy_days = excluded.destroy_days,
			due_at = excluded.due_at, mac = excluded.mac`,
		k.Lineage[:], k.Every, k.VerifyOnly, k.DestroyAfter, keyserver.Micros(k.DueAt), tx.sql.MAC(k.row()))
	return err
}

// DeleteKeyRotation deletes the rotation schedule of a lineage, if there is one.
func (tx *Tx) DeleteKeyRotation(ctx context.Context, lineage keyserver.ID) error {
	tx.changes.Record(keyserver.ChangeKey, lineage, keyserver.Updated)
	_, err := tx.sql.Exec(ctx, `DELETE FROM key_rotations WHERE lineage = $1`, lineage[:])
	return err
}

// LeaseKeyLife is the lease of the process that rotates and destroys keys on schedule.
const LeaseKeyLife = "keyLife"

// Lease takes a lease until now plus lasts. Only one process has a lease at a time. Lease returns false if another
// process has the lease. A stored lease that ends later than now plus lasts is invalid, and is replaced.
func (s *Store) Lease(ctx context.Context, name string, now time.Time, lasts time.Duration) (bool, error) {
	until := now.Add(lasts).UnixMicro()
	n, err := s.db.ExecCommitted(ctx, `UPDATE leases SET until = $1 WHERE name = $2 AND (until <= $3 OR until > $1)`, until, name, now.UnixMicro())
	return n == 1, err
}

// EndLease releases a lease.
func (s *Store) EndLease(ctx context.Context, name string) error {
	_, err := s.db.ExecCommitted(ctx, `UPDATE leases SET until = 0 WHERE name = $1`, name)
	return err
}

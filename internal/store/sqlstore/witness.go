package sqlstore

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// UpdateWitnessedLog calls change with the record of a witnessed log and stores the
// result. The record of a new log has only its origin. No two calls overlap, on any
// replica. If change fails, nothing is stored.
func (s *Store) UpdateWitnessedLog(ctx context.Context, origin string, change func(l *keyserver.WitnessedLog) error) error {
	return s.Update(ctx, func(tx *Tx) error {
		l, err := tx.WitnessedLog(ctx, origin)
		if errors.Is(err, sqldb.ErrNotFound) {
			l, err = keyserver.WitnessedLog{Origin: origin}, nil
		}
		if err != nil {
			return err
		}
		before := l
		if err := change(&l); err != nil || l == before {
			return err
		}
		return tx.PutWitnessedLog(ctx, l)
	})
}

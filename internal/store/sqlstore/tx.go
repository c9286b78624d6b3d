package sqlstore

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/store/auditrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Tx is a write transaction. It sees its own writes.
type Tx struct {
	reads
	auditWrites
	sessionWrites
	trustWrites

	changes *sqldb.Recorder
}

// Update runs fn in a write transaction and commits it if fn returns nil. No two calls overlap, on any replica. After
// the commit, Update passes the changes to the hooks and returns. fn must use only the Tx: a call that appends an audit
// row, or another Update, would wait for the end of this transaction.
//
// Before fn, Update loads the current data keys: fn encrypts keys and makes MACs with the active data key.
//
// If the commit itself fails with STORE_UNAVAILABLE, it is unknown whether the transaction was committed.
func (s *Store) Update(ctx context.Context, fn func(tx *Tx) error) error {
	return s.db.Transact(ctx, func(in sqldb.Statements) ([]keyserver.Change, error) {
		changes := sqldb.NewRecorder()
		tx := &Tx{
			reads: newReads(in), changes: changes,
			auditWrites: auditrows.NewWrites(in), sessionWrites: sessionrows.NewWrites(in, changes), trustWrites: trustrows.NewWrites(in, changes),
		}
		if err := fn(tx); err != nil {
			return nil, err
		}
		err := tx.settleOwners(ctx)
		return changes.Changes(), err
	})
}

// errTried rolls back the transaction of Try.
var errTried = errors.New("the transaction is a trial and is rolled back")

// Try runs fn like Update, but always rolls back the transaction. It returns the error of fn.
func (s *Store) Try(ctx context.Context, fn func(tx *Tx) error) error {
	err := s.Update(ctx, func(tx *Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return errTried
	})
	if errors.Is(err, errTried) {
		return nil
	}
	return err
}

// NoChanges reports whether the transaction has recorded no changes yet.
func (tx *Tx) NoChanges() bool { return len(tx.changes.Changes()) == 0 }

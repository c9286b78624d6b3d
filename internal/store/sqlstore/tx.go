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

// Update runs fn in a write transaction and commits it if fn returns nil. No two transactions overlap, on any replica.
// After the commit, Update passes the changes to the hooks and returns. fn must use only the Tx: an audit row or a
// second Update would wait for the end of this transaction.
//
// The transaction begins with the data keys of the database: fn wraps keys and makes MACs with the active data key.
//
// After STORE_UNAVAILABLE from the commit itself the effect is unknown.
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

// Try runs fn like Update, rolls back what fn did, and returns the error of fn.
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

// Untouched reports whether the transaction has changed nothing yet.
func (tx *Tx) Untouched() bool { return len(tx.changes.Changes()) == 0 }

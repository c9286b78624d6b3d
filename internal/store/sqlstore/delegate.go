package sqlstore

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// AddDelegate permits a delegate to act with the rights of a principal. It returns
// ErrDuplicate if the delegate has this permission already, or ErrNotFound if a
// principal does not exist.
func (tx *Tx) AddDelegate(ctx context.Context, principal, delegate keyserver.ID) error {
	err := tx.changePrincipal(ctx, principal, func(p *storedPrincipal) { p.Delegates = append(p.Delegates, delegate) })
	if err != nil {
		return err
	}
	_, err = tx.sql.Exec(ctx, `INSERT INTO delegates (principal_id, delegate_id) VALUES ($1, $2)`, principal[:], delegate[:])
	return err
}

// RemoveDelegate removes a delegate of a principal. It returns ErrNotFound if there is no such delegate.
func (tx *Tx) RemoveDelegate(ctx context.Context, principal, delegate keyserver.ID) error {
	err := tx.changePrincipal(ctx, principal, func(p *storedPrincipal) { p.Delegates = without(p.Delegates, delegate) })
	if err != nil {
		return err
	}
	return tx.sql.ExecOne(ctx, `DELETE FROM delegates WHERE principal_id = $1 AND delegate_id = $2`, principal[:], delegate[:])
}

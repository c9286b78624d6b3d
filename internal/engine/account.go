package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// SetPassword gives a principal another password, ends all of its sessions, and
// answers how many there were. Whoever sets somebody's password can become him:
// all that he holds has to be the caller's to give.
func (e *Engine) SetPassword(ctx context.Context, by keyserver.Caller, c keyserver.PasswordChange) (ended int, err error) {
	r := request{by: by, op: keyserver.OpSetPassword, object: c.Principal.Hex(), own: c.Own()}
	err = e.perform(ctx, r, func() error {
		p, err := e.Store.Principal(ctx, c.Principal)
		if err := takesPassword(p, c.Principal, err); err != nil {
			return err
		}
		hash, err := c.Hash() // before the transaction: it takes its time
		if err != nil {
			return err
		}
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			ended, err = e.setPassword(ctx, tx, by, c, hash)
			return err
		})
	})
	return ended, err
}

func (e *Engine) setPassword(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, c keyserver.PasswordChange, hash string) (int, error) {
	p, err := tx.Principal(ctx, c.Principal)
	if err := takesPassword(p, c.Principal, err); err != nil {
		return 0, err
	}
	if err := e.mayBecome(ctx, tx, by, c); err != nil {
		return 0, err
	}
	if err := tx.SetPassword(ctx, c.Principal, hash); err != nil {
		return 0, err
	}
	return tx.DeleteSessionsOf(ctx, p.Ref())
}

func takesPassword(p keyserver.Principal, id keyserver.ID, err error) error {
	switch {
	case err != nil:
		return notFound(err, fault.NotFound, "no principal has the id %s", id)
	case p.Type != keyserver.PasswordPrincipal:
		return keyserver.NoPassword(p.Type)
	default:
		return nil
	}
}

// mayBecome refuses a caller that may not give all that the principal holds; of
// one's own account, one whose password has been changed since it was shown.
func (e *Engine) mayBecome(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, c keyserver.PasswordChange) error {
	if c.Own() {
		now, err := tx.PasswordHash(ctx, c.Principal)
		if err == nil && now != c.Shown {
			err = fault.New(fault.InvalidCredentials, "the password of your account has just been changed").Audited(fault.ReasonBadCredentials)
		}
		return err
	}
	from, err := e.giver(ctx, tx, by)
	if err != nil {
		return err
	}
	return mayGiveAll(ctx, tx, from, c.Principal)
}

package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/deletion"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// SetPassword gives a principal another password, ends all of its sessions, and
// answers how many there were. Whoever sets somebody's password can become him:
// all that he holds has to be the caller's to give.
func (e *Engine) SetPassword(ctx context.Context, by keyserver.Caller, c keyserver.PasswordChange) (ended int, err error) {
	hash := "" // as long as it is tried
	set := func(tx *sqlstore.Tx) (err error) {
		ended, err = e.setPassword(ctx, tx, by, c, hash)
		return err
	}
	r := gate.Request{By: by, Op: keyserver.OpSetPassword, Object: c.Principal.Hex(), Own: c.Own(), Tries: set}
	err = e.Perform(ctx, r, func() error {
		p, err := e.Store.Principal(ctx, c.Principal)
		if err := takesPassword(p, c.Principal, err); err != nil {
			return err
		}
		if hash, err = c.Hash(); err != nil { // before the transaction: it takes its time
			return err
		}
		return e.Store.Update(ctx, set)
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
		return gate.NotFound(err, fault.NotFound, "no principal has the id %s", id)
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
		if err == nil && !password.Same(now, c.Shown) {
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

// DeletePrincipal implements keyserver.Principals. Where an heir is given much, it
// takes more than one transaction: the principal is gone with the last, and what
// is done before is that the heir owns keys beside it.
func (e *Engine) DeletePrincipal(ctx context.Context, by keyserver.Caller, d keyserver.Departure) (done keyserver.DepartureDone, err error) {
	r := gate.Request{By: by, Op: keyserver.OpDeletePrincipal, Object: d.ID.Hex()}
	if !d.Heir.IsZero() {
		r.Object += " to " + d.Heir.Hex()
	}
	over := false
	r.Tries = func(tx *sqlstore.Tx) (err error) {
		done, over, err = e.deletePrincipal(ctx, tx, by, d)
		return err
	}
	err = e.Perform(ctx, r, func() error {
		for over = false; !over; {
			if err := e.Store.Update(ctx, r.Tries); err != nil {
				return err
			}
		}
		return nil
	})
	return done, err
}

func (e *Engine) deletePrincipal(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, d keyserver.Departure) (done keyserver.DepartureDone, over bool, err error) {
	var none keyserver.DepartureDone
	from, err := e.giver(ctx, tx, by)
	if err != nil {
		return none, false, err
	}
	caller, err := tx.Principal(ctx, by.Principal.ID)
	if err != nil {
		return none, false, err
	}
	p, err := tx.Principal(ctx, d.ID)
	if err != nil {
		return none, false, gate.NotFound(err, fault.NotFound, "no principal has the id %s", d.ID)
	}
	if err := deletion.RefuseToGo(caller, p); err != nil {
		return none, false, err
	}
	lost, err := holds(ctx, tx, d.ID)
	if err != nil {
		return none, false, err
	}
	if err := from.refuseToTake(lost); err != nil {
		return none, false, err
	}
	left := deletion.Estate{Of: p, At: keyserver.StampOf(e.Clock()), Random: e.Random}
	if !d.Heir.IsZero() {
		if left.Heir, err = mayInherit(ctx, tx, caller, from, d); err != nil {
			return none, false, err
		}
	}
	err = e.lasting(ctx, tx, func() (err error) {
		done, over, err = left.Settle(ctx, tx)
		return err
	})
	return done, over, err
}

// mayInherit answers the heir. To say who receives what somebody owns takes being
// able to become him (ADR 36).
func mayInherit(ctx context.Context, tx *sqlstore.Tx, caller keyserver.Principal, from giver, d keyserver.Departure) (none keyserver.PrincipalRef, err error) {
	heir, err := tx.Principal(ctx, d.Heir)
	if err != nil {
		return none, gate.NotFound(err, fault.InvalidArgument, "heir names %s, which is no principal of this key server", d.Heir)
	}
	if err := deletion.RefuseHeir(caller, heir, d.ID); err != nil {
		return none, err
	}
	return heir.Ref(), mayGiveAll(ctx, tx, from, d.ID)
}

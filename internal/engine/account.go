package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/deletion"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// SetPassword sets a principal's password and ends all of its sessions. It returns the number of ended sessions. A
// caller that sets the password of another principal can log in as that principal. Therefore the caller must be
// permitted to give all operations of that principal.
func (e *Engine) SetPassword(ctx context.Context, by keyserver.Caller, c keyserver.PasswordChange) (ended int, err error) {
	hash := "" // empty while the gate only tries the transaction
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
		if hash, err = c.Hash(); err != nil { // before the transaction, because hashing is slow
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
	if err := e.checkPasswordChange(ctx, tx, by, c); err != nil {
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

// checkPasswordChange returns an error if the caller may not give all operations of the principal. For the caller's own
// account it returns an error if the password has changed since the caller proved the old one.
func (e *Engine) checkPasswordChange(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, c keyserver.PasswordChange) error {
	if c.Own() {
		now, err := tx.PasswordHash(ctx, c.Principal)
		if err == nil && !password.Same(now, c.CurrentHash) {
			err = fault.New(fault.InvalidCredentials, "another request changed your password; log in with the new one").Audited(fault.ReasonBadCredentials)
		}
		return err
	}
	from, err := e.grantor(ctx, tx, by)
	if err != nil {
		return err
	}
	return mayGiveAll(ctx, tx, from, c.Principal)
}

// DeletePrincipal implements keyserver.Principals. If the new owner receives many keys, the deletion takes several
// transactions. The last transaction deletes the principal. Until then, keys may have both owners: the principal and
// the new owner.
func (e *Engine) DeletePrincipal(ctx context.Context, by keyserver.Caller, d keyserver.PrincipalDeletion) (done keyserver.PrincipalDeletionResult, err error) {
	r := gate.Request{By: by, Op: keyserver.OpDeletePrincipal, Object: d.ID.Hex()}
	if !d.NewOwner.IsZero() {
		r.Object += " to " + d.NewOwner.Hex()
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

func (e *Engine) deletePrincipal(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, d keyserver.PrincipalDeletion) (done keyserver.PrincipalDeletionResult, over bool, err error) {
	var none keyserver.PrincipalDeletionResult
	from, err := e.grantor(ctx, tx, by)
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
	if err := deletion.RefuseDeletion(caller, p); err != nil {
		return none, false, err
	}
	lost, err := holds(ctx, tx, d.ID)
	if err != nil {
		return none, false, err
	}
	if err := from.refuseRevocation(lost); err != nil {
		return none, false, err
	}
	left := deletion.Task{Principal: p, At: values.StampOf(e.Clock()), Random: e.Random}
	if !d.NewOwner.IsZero() {
		if left.NewOwner, err = resolveNewOwner(ctx, tx, caller, from, d); err != nil {
			return none, false, err
		}
	}
	err = e.withDutyHolderCheck(ctx, tx, func() (err error) {
		done, over, err = left.Step(ctx, tx)
		return err
	})
	return done, over, err
}

// resolveNewOwner returns the new owner of a deleted principal's keys. It returns an error unless the caller may give
// all operations of the deleted principal (ADR 36).
func resolveNewOwner(ctx context.Context, tx *sqlstore.Tx, caller keyserver.Principal, from grantor, d keyserver.PrincipalDeletion) (none keyserver.PrincipalRef, err error) {
	heir, err := tx.Principal(ctx, d.NewOwner)
	if err != nil {
		return none, gate.NotFound(err, fault.InvalidArgument, "heir: %s is not a principal of this key server; list them with GET /api/principals", d.NewOwner)
	}
	if err := deletion.RefuseNewOwner(caller, heir, d.ID); err != nil {
		return none, err
	}
	return heir.Ref(), mayGiveAll(ctx, tx, from, d.ID)
}

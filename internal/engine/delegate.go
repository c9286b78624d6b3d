package engine

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// AddDelegate implements keyserver.Principals. The delegate gets the delegable operations of the principal, so the
// caller must be permitted to give these operations.
func (e *Engine) AddDelegate(ctx context.Context, by keyserver.Caller, d keyserver.Delegate) error {
	return e.changeDelegate(ctx, by, d, func(tx *sqlstore.Tx, p keyserver.Principal) error {
		if slices.Contains(p.Delegates, d.Delegate) {
			return nil
		}
		to, err := tx.Principal(ctx, d.Delegate)
		switch {
		case err != nil:
			return gate.NotFound(err, fault.NotFound, "pid: no principal has the id %s", d.Delegate)
		case d.Delegate == d.Principal, to.Type == keyserver.GroupPrincipal:
			return gate.Invalid("pid must be another principal and not a group, because a delegate logs in itself")
		case len(p.Delegates) >= keyserver.MaxDelegates:
			return gate.Invalid("principal %q has %d delegates, the limit; remove one first", p.Name, len(p.Delegates))
		}
		if err := e.checkDelegationEscalation(ctx, tx, by, p.ID); err != nil {
			return err
		}
		return tx.AddDelegate(ctx, p.ID, d.Delegate)
	})
}

// RemoveDelegate implements keyserver.Principals. If it removes the last delegate, it also clears the delegation flag.
// A set flag without delegates would permit every principal to act for this principal.
func (e *Engine) RemoveDelegate(ctx context.Context, by keyserver.Caller, d keyserver.Delegate) error {
	return e.changeDelegate(ctx, by, d, func(tx *sqlstore.Tx, p keyserver.Principal) error {
		if !slices.Contains(p.Delegates, d.Delegate) {
			return fault.New(fault.NotFound, "pid: %s is not a delegate of the principal %q", d.Delegate, p.Name).Audited(fault.ReasonObjectNotFound)
		}
		if err := tx.RemoveDelegate(ctx, p.ID, d.Delegate); err != nil {
			return err
		}
		if len(p.Delegates) > 1 || !p.Flags.Delegation() {
			return nil
		}
		return tx.SetPrincipalFlags(ctx, p.ID, p.Flags&^keyserver.FlagDelegation)
	})
}

// changeDelegate runs a change of one delegate within a transaction, with the principal that the transaction reads.
// Like every update, it does not change system-defined principals.
func (e *Engine) changeDelegate(ctx context.Context, by keyserver.Caller, d keyserver.Delegate,
	change func(*sqlstore.Tx, keyserver.Principal) error,
) error {
	r := gate.Request{By: by, Op: keyserver.OpUpdatePrincipalFlags, Object: d.Delegate.Hex() + " for " + d.Principal.Hex()}
	return e.Write(ctx, r, func(tx *sqlstore.Tx) error {
		p, err := tx.Principal(ctx, d.Principal)
		switch {
		case err != nil:
			return gate.NotFound(err, fault.NotFound, "id: no principal has the id %s", d.Principal)
		case p.Flags.SystemDefined():
			return nil
		case !p.Type.CarriesFlags():
			return gate.Invalid("a %s principal has no flag word, so it cannot have delegates; name a principal of another type", p.Type)
		}
		return change(tx, p)
	})
}

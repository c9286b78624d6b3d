package engine

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Principal implements keyserver.Principals.
func (e *Engine) Principal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (p keyserver.Principal, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadPrincipal, Object: id.Hex()}, func() (err error) {
		p, err = e.Store.Principal(ctx, id)
		return gate.NotFound(err, fault.NotFound, "no principal has the id %s", id)
	})
	return p, err
}

// CreatePasswordPrincipal implements keyserver.Principals.
func (e *Engine) CreatePasswordPrincipal(ctx context.Context, by keyserver.Caller, n keyserver.NewPasswordPrincipal) (keyserver.ID, error) {
	id, err := values.NewID(e.Random)
	if err != nil {
		return keyserver.ID{}, err
	}
	p := keyserver.Principal{
		ID: id, System: e.System, Type: keyserver.PasswordPrincipal, Name: n.Name,
		Flags: keyserver.FlagEnable, Roles: keyserver.NormalizeIDs(n.Roles),
	}
	hash := "" // empty while the gate only tries the transaction
	insert := func(tx *sqlstore.Tx) error { return e.insertPrincipal(ctx, tx, by, p, hash) }
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpCreatePrincipal, Object: id.Hex(), Tries: insert}, func() (err error) {
		if hash, err = e.hash(ctx, by, n.Password); err != nil {
			return err
		}
		return e.Store.Update(ctx, insert)
	})
	if err != nil {
		return keyserver.ID{}, err
	}
	return id, nil
}

func (e *Engine) hash(ctx context.Context, by keyserver.Caller, text string) (string, error) {
	leave, err := e.Hashes.Enter(ctx, by.Name, false)
	if err != nil {
		return "", err
	}
	defer leave()
	return e.PasswordCost.Hash(ctx, text, e.Random)
}

// CreatePrincipal implements keyserver.Principals.
func (e *Engine) CreatePrincipal(ctx context.Context, by keyserver.Caller, n keyserver.NewPrincipal) (keyserver.ID, error) {
	id, err := values.NewID(e.Random)
	if err != nil {
		return keyserver.ID{}, err
	}
	p := keyserver.Principal{
		ID: id, System: e.System, Type: n.Type, Name: n.Name,
		Flags: keyserver.FlagEnable, Roles: keyserver.NormalizeIDs(n.Roles), Identity: n.Identity,
	}
	err = e.Write(ctx, gate.Request{By: by, Op: keyserver.OpCreatePrincipal, Object: id.Hex()}, func(tx *sqlstore.Tx) error {
		if err := refuseType(n); err != nil {
			return err
		}
		return e.insertPrincipal(ctx, tx, by, p, "")
	})
	if err != nil {
		return keyserver.ID{}, err
	}
	return id, nil
}

// refuseType returns an error for a type that another operation creates. It also rejects an identity for a type other
// than xauth.
func refuseType(n keyserver.NewPrincipal) error {
	switch n.Type {
	case keyserver.LDAPPrincipal, keyserver.GroupPrincipal, keyserver.XAuthPrincipal:
		if (n.Identity != nil) == (n.Type == keyserver.XAuthPrincipal) {
			return nil
		}
	default:
	}
	return fault.New(fault.InvalidArgument, "type: a %q principal cannot be created with this request; use the route for its type", n.Type).Audited(fault.ReasonInvalidArgument)
}

// insertPrincipal writes a principal. It returns an error if the caller may not give the principal's roles.
func (e *Engine) insertPrincipal(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, p keyserver.Principal, hash string) error {
	return e.withEscalationCheck(ctx, tx, by, p.ID, func() error { return insertPrincipal(ctx, tx, p, hash) })
}

// insertPrincipal writes a principal. It returns an error if a role does not exist, or if another principal of the type
// has the name, or if the identity exists.
func insertPrincipal(ctx context.Context, tx *sqlstore.Tx, p keyserver.Principal, hash string) error {
	if err := rolesExist(ctx, tx, p.Roles); err != nil {
		return err
	}
	if p.Identity != nil {
		_, err := tx.PrincipalByIdentity(ctx, p.Identity.Issuer, p.Identity.Subject)
		if err == nil {
			return fault.New(fault.AlreadyExists, "an xauth principal with this issuer and subject already exists; use it, or send another subject").Audited(fault.ReasonInvalidArgument)
		}
		if !errors.Is(err, sqlstore.ErrNotFound) {
			return err
		}
	}
	err := tx.InsertPrincipal(ctx, p, hash)
	if errors.Is(err, sqlstore.ErrDuplicate) {
		return fault.New(fault.AlreadyExists, "name: a %s principal with this name already exists", p.Type).Audited(fault.ReasonInvalidArgument)
	}
	return err
}

func rolesExist(ctx context.Context, tx *sqlstore.Tx, roles []keyserver.ID) error {
	for _, role := range roles {
		if _, err := tx.Role(ctx, role); err != nil {
			return gate.NotFound(err, fault.InvalidArgument, "roleIds: %s is not a role; list them with GET /api/roles", role)
		}
	}
	return nil
}

// UpdatePrincipalFlags implements keyserver.Principals. It reads and writes the flags in one transaction, so that
// concurrent changes of different flags both take effect.
func (e *Engine) UpdatePrincipalFlags(ctx context.Context, by keyserver.Caller, change keyserver.FlagChange) error {
	return e.updatePrincipal(ctx, by, keyserver.OpUpdatePrincipalFlags, change.ID, func(tx *sqlstore.Tx, p keyserver.Principal) error {
		if !p.Type.CarriesFlags() {
			return fault.New(fault.InvalidArgument, "a %s principal has no flag word; remove its roles or its members instead", p.Type).Audited(fault.ReasonInvalidArgument)
		}
		if word := change.Apply(p.Flags); word.Delegation() && !p.Flags.Delegation() {
			if err := e.checkDelegationEscalation(ctx, tx, by, change.ID); err != nil {
				return err
			}
		}
		return e.withDutyHolderCheck(ctx, tx, func() error { return tx.SetPrincipalFlags(ctx, change.ID, change.Apply(p.Flags)) })
	})
}

// SetPrincipalRoles implements keyserver.Principals.
func (e *Engine) SetPrincipalRoles(ctx context.Context, by keyserver.Caller, r keyserver.PrincipalRoles) error {
	return e.updatePrincipal(ctx, by, keyserver.OpUpdatePrincipalRoles, r.ID, func(tx *sqlstore.Tx, _ keyserver.Principal) error {
		if err := rolesExist(ctx, tx, r.Roles); err != nil {
			return err
		}
		return e.withDutyHolderCheck(ctx, tx, func() error {
			return e.withEscalationCheck(ctx, tx, by, r.ID, func() error { return tx.SetPrincipalRoles(ctx, r.ID, r.Roles) })
		})
	})
}

// updatePrincipal runs a change of one principal within a transaction. The change gets the principal that the
// transaction reads. For a system-defined principal, updatePrincipal changes nothing and reports success (contract
// 4.6). Callers have to check for such a principal first.
func (e *Engine) updatePrincipal(ctx context.Context, by keyserver.Caller, op keyserver.Operation, id keyserver.ID,
	change func(*sqlstore.Tx, keyserver.Principal) error,
) error {
	return e.Write(ctx, gate.Request{By: by, Op: op, Object: id.Hex()}, func(tx *sqlstore.Tx) error {
		p, err := tx.Principal(ctx, id)
		if err != nil {
			return gate.NotFound(err, fault.NotFound, "no principal has the id %s", id)
		}
		if p.Flags.SystemDefined() {
			return nil
		}
		return change(tx, p)
	})
}

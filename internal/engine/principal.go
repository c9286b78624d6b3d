package engine

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/password"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// Principal implements keyserver.Principals.
func (e *Engine) Principal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (p keyserver.Principal, err error) {
	err = e.perform(ctx, request{by: by, op: keyserver.OpReadPrincipal, object: id.Hex()}, func() (err error) {
		p, err = e.Store.Principal(ctx, id)
		return notFound(err, fault.NotFound, "no principal has the id %s", id)
	})
	return p, err
}

// CreatePasswordPrincipal implements keyserver.Principals.
func (e *Engine) CreatePasswordPrincipal(ctx context.Context, by keyserver.Caller, n keyserver.NewPasswordPrincipal) (keyserver.ID, error) {
	id, err := keyserver.NewID(e.Random)
	if err != nil {
		return keyserver.ID{}, err
	}
	err = e.perform(ctx, request{by: by, op: keyserver.OpCreatePrincipal, object: id.Hex()}, func() error {
		hash, err := password.Hash(ctx, n.Password, e.Random)
		if err != nil {
			return err
		}
		p := keyserver.Principal{
			ID: id, System: e.System, Type: keyserver.PasswordPrincipal, Name: n.Name,
			Flags: keyserver.FlagEnable, Roles: keyserver.NormalizeIDs(n.Roles),
		}
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error { return insertPrincipal(ctx, tx, p, hash) })
	})
	if err != nil {
		return keyserver.ID{}, err
	}
	return id, nil
}

// insertPrincipal writes a principal and refuses roles that do not exist and
// names that are taken within the type.
func insertPrincipal(ctx context.Context, tx *sqlstore.Tx, p keyserver.Principal, hash string) error {
	for _, role := range p.Roles {
		if _, err := tx.Role(ctx, role); err != nil {
			return notFound(err, fault.InvalidArgument, "roleIds names %s, which is no role; list them with GET /api/roles", role)
		}
	}
	err := tx.InsertPrincipal(ctx, p, hash)
	if errors.Is(err, sqlstore.ErrDuplicate) {
		return fault.New(fault.AlreadyExists, "a %s principal of that name exists", p.Type).Audited(fault.ReasonInvalidArgument)
	}
	return err
}

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

// Operations implements keyserver.Roles.
func (e *Engine) Operations(ctx context.Context, by keyserver.Caller) ([]keyserver.Operation, error) {
	if err := e.AuthorizeAndAudit(ctx, gate.Request{By: by, Op: keyserver.OpListOperations}); err != nil {
		return nil, err
	}
	return keyserver.Operations, nil
}

// Roles implements keyserver.Roles.
func (e *Engine) Roles(ctx context.Context, by keyserver.Caller) (roles []keyserver.Role, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListRoles}, func() (err error) {
		roles, err = e.Store.Roles(ctx)
		return err
	})
	return roles, err
}

// FindRoles implements keyserver.Roles. Its operation is List Roles.
func (e *Engine) FindRoles(ctx context.Context, by keyserver.Caller, f keyserver.RoleFilter) (roles []keyserver.Role, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListRoles}, func() (err error) {
		roles, err = e.Store.FindRoles(ctx, f)
		return err
	})
	return roles, err
}

// CreateRole implements keyserver.Roles.
func (e *Engine) CreateRole(ctx context.Context, by keyserver.Caller, n keyserver.NewRole) (keyserver.ID, error) {
	id, err := values.NewID(e.Random)
	if err != nil {
		return keyserver.ID{}, err
	}
	r := gate.Request{By: by, Op: keyserver.OpCreateRole, Object: id.Hex()}
	err = e.Write(ctx, r, func(tx *sqlstore.Tx) error {
		return e.withRoleEscalationCheck(ctx, tx, by, id, func() error {
			return takenName(tx.InsertRole(ctx, n.Role(id)))
		})
	})
	if err != nil {
		return keyserver.ID{}, err
	}
	return id, nil
}

// UpdateRole implements keyserver.Roles.
func (e *Engine) UpdateRole(ctx context.Context, by keyserver.Caller, change keyserver.RoleChange) error {
	return e.changeRole(ctx, by, keyserver.OpUpdateRole, change.ID, func(tx *sqlstore.Tx) error {
		return e.withDutyHolderCheck(ctx, tx, func() error {
			return e.withRoleEscalationCheck(ctx, tx, by, change.ID, func() error { return takenName(tx.UpdateRole(ctx, change)) })
		})
	})
}

// DeleteRole implements keyserver.Roles.
func (e *Engine) DeleteRole(ctx context.Context, by keyserver.Caller, id keyserver.ID) error {
	return e.changeRole(ctx, by, keyserver.OpDeleteRole, id, func(tx *sqlstore.Tx) error {
		return e.withDutyHolderCheck(ctx, tx, func() error { return tx.DeleteRole(ctx, id) })
	})
}

func (e *Engine) changeRole(ctx context.Context, by keyserver.Caller, op keyserver.Operation, id keyserver.ID,
	change func(*sqlstore.Tx) error,
) error {
	return e.Write(ctx, gate.Request{By: by, Op: op, Object: id.Hex()}, func(tx *sqlstore.Tx) error {
		role, err := tx.Role(ctx, id)
		if err != nil {
			return gate.NotFound(err, fault.NotFound, "no role has the id %s", id)
		}
		if err := role.RefuseChange(); err != nil {
			return err
		}
		return change(tx)
	})
}

// takenName converts the error of a duplicate name into a fault.
func takenName(err error) error {
	if errors.Is(err, sqlstore.ErrDuplicate) {
		return fault.New(fault.AlreadyExists, "name: already in use; choose another").Audited(fault.ReasonInvalidArgument)
	}
	return err
}

package engine

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// PrincipalTrusts implements keyserver.PrincipalTrusts.
func (e *Engine) PrincipalTrusts(ctx context.Context, by keyserver.Caller, f keyserver.PrincipalTrustFilter) (list []keyserver.PrincipalTrust, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListPrincipalTrusts}, func() (err error) {
		windowed := f.Limit > 0
		if !windowed {
			f.Limit, f.Offset = keyserver.MaxUnwindowed+1, 0
		}
		list, err = e.Store.PrincipalTrusts(ctx, f)
		if err == nil && !windowed && len(list) > keyserver.MaxUnwindowed {
			return fault.New(fault.InvalidArgument, "there are more than %d principal trusts; page them with limit and offset", keyserver.MaxUnwindowed).
				Audited(fault.ReasonLimit)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// CreatePrincipalTrust implements keyserver.PrincipalTrusts.
func (e *Engine) CreatePrincipalTrust(ctx context.Context, by keyserver.Caller, t keyserver.PrincipalTrust) (keyserver.ID, error) {
	id, err := keyserver.NewID(e.Random)
	if err != nil {
		return keyserver.ID{}, err
	}
	t.ID = id
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpCreatePrincipalTrust, Object: id.Hex()}, func() error {
		foreign, err := e.isForeign(ctx, by, t)
		if err != nil {
			return err
		}
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error { return insertPrincipalTrust(ctx, tx, t, foreign) })
	})
	if err != nil {
		return keyserver.ID{}, err
	}
	return id, nil
}

// UpdatePrincipalTrust implements keyserver.PrincipalTrusts.
func (e *Engine) UpdatePrincipalTrust(ctx context.Context, by keyserver.Caller, change keyserver.PrincipalTrustChange) error {
	return e.changeTrust(ctx, by, keyserver.OpUpdatePrincipalTrust, change.ID, func(tx *sqlstore.Tx) error {
		return tx.SetPrincipalTrustFlag(ctx, change)
	})
}

// DeletePrincipalTrust implements keyserver.PrincipalTrusts.
func (e *Engine) DeletePrincipalTrust(ctx context.Context, by keyserver.Caller, id keyserver.ID) error {
	return e.changeTrust(ctx, by, keyserver.OpDeletePrincipalTrust, id, func(tx *sqlstore.Tx) error {
		return tx.DeletePrincipalTrust(ctx, id)
	})
}

func (e *Engine) changeTrust(ctx context.Context, by keyserver.Caller, op keyserver.Operation, id keyserver.ID, change func(*sqlstore.Tx) error) error {
	return e.Perform(ctx, gate.Request{By: by, Op: op, Object: id.Hex()}, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return gate.NotFound(change(tx), fault.NotFound, "no principal trust has the id %s", id)
		})
	})
}

// insertPrincipalTrust writes a row for a principal that exists, here or
// (foreign) at the peer, and a peer that is registered: a misspelt restriction
// must not look like one.
func insertPrincipalTrust(ctx context.Context, tx *sqlstore.Tx, t keyserver.PrincipalTrust, foreign bool) error {
	registered, err := tx.IsTrustedServer(ctx, t.Server)
	if err != nil {
		return err
	}
	if !registered {
		return noPeer(sqlstore.ErrNotFound, t.Server)
	}
	_, err = tx.Principal(ctx, t.Principal)
	if foreign && errors.Is(err, sqlstore.ErrNotFound) {
		err = nil
	}
	if err != nil {
		return gate.NotFound(err, fault.NotFound, "no principal has the id %s: it has to be one of this key server, or for a restriction one of the peer", t.Principal)
	}
	err = tx.InsertPrincipalTrust(ctx, t)
	if errors.Is(err, sqlstore.ErrDuplicate) {
		return fault.New(fault.AlreadyExists, "principal %s has a principal trust for the peer %d already", t.Principal, t.Server).
			Audited(fault.ReasonInvalidArgument)
	}
	return err
}

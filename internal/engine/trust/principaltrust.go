package trust

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// PrincipalTrusts implements keyserver.PrincipalTrusts.
func (tr *Trust) PrincipalTrusts(ctx context.Context, by keyserver.Caller, f keyserver.PrincipalTrustFilter) (list []keyserver.PrincipalTrust, err error) {
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListPrincipalTrusts}, func() (err error) {
		windowed := f.Limit > 0
		if !windowed {
			f.Limit, f.Offset = keyserver.MaxUnwindowed+1, 0
		}
		list, err = tr.Store.PrincipalTrusts(ctx, f)
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
func (tr *Trust) CreatePrincipalTrust(ctx context.Context, by keyserver.Caller, t keyserver.PrincipalTrust) (keyserver.ID, error) {
	id, err := values.NewID(tr.Random)
	if err != nil {
		return keyserver.ID{}, err
	}
	t.ID = id
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpCreatePrincipalTrust, Object: id.Hex()}, func() error {
		foreign, err := tr.isForeign(ctx, by, t)
		if err != nil {
			return err
		}
		return tr.Store.Update(ctx, func(tx *sqlstore.Tx) error { return insertPrincipalTrust(ctx, tx, t, foreign) })
	})
	if err != nil {
		return keyserver.ID{}, err
	}
	return id, nil
}

// UpdatePrincipalTrust implements keyserver.PrincipalTrusts.
func (tr *Trust) UpdatePrincipalTrust(ctx context.Context, by keyserver.Caller, change keyserver.PrincipalTrustChange) error {
	return tr.changeTrust(ctx, by, keyserver.OpUpdatePrincipalTrust, change.ID, func(tx *sqlstore.Tx) error {
		return tx.SetPrincipalTrustFlag(ctx, change)
	})
}

// DeletePrincipalTrust implements keyserver.PrincipalTrusts.
func (tr *Trust) DeletePrincipalTrust(ctx context.Context, by keyserver.Caller, id keyserver.ID) error {
	return tr.changeTrust(ctx, by, keyserver.OpDeletePrincipalTrust, id, func(tx *sqlstore.Tx) error {
		return tx.DeletePrincipalTrust(ctx, id)
	})
}

func (tr *Trust) changeTrust(ctx context.Context, by keyserver.Caller, op keyserver.Operation, id keyserver.ID, change func(*sqlstore.Tx) error) error {
	return tr.Perform(ctx, gate.Request{By: by, Op: op, Object: id.Hex()}, func() error {
		return tr.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return gate.NotFound(change(tx), fault.NotFound, "no principal trust has the id %s", id)
		})
	})
}

// insertPrincipalTrust writes a principal trust. The peer must be registered. The principal must exist on this key
// server or, if foreign is set, on the peer. Otherwise a restriction with a wrong id would look valid.
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
		return gate.NotFound(err, fault.NotFound, "no principal has the id %s; it must be a principal of this key server or, for a restriction, of the peer", t.Principal)
	}
	err = tx.InsertPrincipalTrust(ctx, t)
	if errors.Is(err, sqlstore.ErrDuplicate) {
		return fault.New(fault.AlreadyExists, "principal %s already has a principal trust for the peer %d; change its flag instead", t.Principal, t.Server).
			Audited(fault.ReasonInvalidArgument)
	}
	return err
}

// isForeign reports whether a principal trust restricts a principal of the peer, which this key server does not have.
// To detect wrong ids, the principal must have an ACL entry here, or the peer must know the principal. If the peer
// cannot be reached, the restriction is permitted.
func (tr *Trust) isForeign(ctx context.Context, by keyserver.Caller, t keyserver.PrincipalTrust) (bool, error) {
	_, err := tr.Store.Principal(ctx, t.Principal)
	if !errors.Is(err, sqlstore.ErrNotFound) || t.Flag != keyserver.Restrict {
		return false, gate.UnlessNotFound(err)
	}
	peer, err := tr.CachedPeer(ctx, t.Server)
	if err != nil {
		return false, gate.UnlessNotFound(err)
	}
	ref := keyserver.PrincipalRef{System: t.Server, ID: t.Principal}
	if known, err := tr.Store.HasACLEntries(ctx, ref); err != nil || known || tr.Peers == nil {
		return known, err
	}
	as := keyserver.Caller{Kind: keyserver.InternalSession, RequestID: by.RequestID, Peer: &keyserver.PeerCall{System: tr.System}}
	if err := gate.Fill(tr.Random, as.Peer.Key[:]); err != nil {
		return false, err
	}
	list, err := tr.Peers.At(peer).LookupPrincipals(ctx, as, []keyserver.PrincipalRef{ref})
	if err != nil && ctx.Err() == nil {
		tr.Logger.Warn("a principal of a peer was restricted, but the peer did not confirm that the principal exists",
			"principal", ref.String(), "requestId", by.RequestID, "cause", err)
		return true, nil
	}
	return len(list) > 0, err
}

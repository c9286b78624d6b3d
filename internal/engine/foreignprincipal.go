package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// maxAsked is how many peers one lookup asks at a time.
const maxAsked = 8

// foreignPrincipals asks each peer for its own among the pairs. What a peer
// cannot be asked, or does not tell, is left out: the row of that refusal is in
// the audit trail. A peer that does answer, and says that a principal is
// disabled or that it has none, has the principal's entries here closed.
func (e *Engine) foreignPrincipals(ctx context.Context, by keyserver.Caller, pairs []keyserver.PrincipalRef) (map[keyserver.PrincipalRef]keyserver.Principal, error) {
	of := map[keyserver.SystemID][]keyserver.PrincipalRef{}
	for _, pair := range pairs {
		if pair.System != e.System && !slices.Contains(of[pair.System], pair) {
			of[pair.System] = append(of[pair.System], pair)
		}
	}
	found := map[keyserver.PrincipalRef]keyserver.Principal{}
	var mu sync.Mutex
	var errs []error
	var asking sync.WaitGroup
	places := make(chan struct{}, maxAsked)
	for system, asked := range of {
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			list, err := e.lookupAt(ctx, by, system, asked)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			for _, p := range list {
				found[p.Ref()] = p
			}
		})
	}
	asking.Wait()
	return found, errors.Join(errs...)
}

// lookupAt asks one peer for principals of its own. No list and no error is a
// peer that could not be asked. One that cannot be shown as the peer answers it
// is left out, and is not taken for gone.
func (e *Engine) lookupAt(ctx context.Context, by keyserver.Caller, system keyserver.SystemID, asked []keyserver.PrincipalRef) (list []keyserver.Principal, err error) {
	r := gate.Request{By: by, Op: keyserver.OpLookupPrincipals, Object: fmt.Sprintf("%s at the peer %d", pairsObject(asked), system)}
	err = e.Consult(ctx, r, system, fault.NotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		list, err = at.LookupPrincipals(ctx, as, asked)
		return err
	})
	var there []keyserver.PrincipalRef
	var unreadable *keyserver.UnreadableError
	switch {
	case err == nil:
	case errors.As(err, &unreadable) && unlessPeers(err) == nil:
		there = unreadable.Principals
	default:
		return nil, unlessPeers(err)
	}
	for _, ref := range asked {
		if slices.Contains(there, ref) {
			continue
		}
		i := slices.IndexFunc(list, func(p keyserver.Principal) bool { return p.Ref() == ref })
		if i >= 0 && !list[i].Flags.Disabled() {
			continue
		}
		if err := e.closeEntries(ctx, by, ref); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// unlessPeers passes on what is wrong with this key server itself: that the
// audit trail or the database fails, or that the caller is gone.
func unlessPeers(err error) error {
	f := fault.As(err)
	if f == nil {
		return err
	}
	switch f.Code {
	case fault.AuditUnavailable, fault.StoreUnavailable, fault.StoreTampered, fault.NotCurrent:
		return err
	}
	return nil
}

// closeEntries ends the entries of a foreign principal that its home has
// disabled or removed: their time window closes now, which a reader of the list
// can see and an owner undo. It is a consequence of a lookup that the gate let
// through, so no role is asked for, but it has a row of its own.
func (e *Engine) closeEntries(ctx context.Context, by keyserver.Caller, p keyserver.PrincipalRef) error {
	now := keyserver.StampOf(e.Clock())
	open, err := e.Store.HasOpenACLEntries(ctx, p, now)
	if err != nil || !open {
		return err
	}
	r := gate.Request{By: by, Op: keyserver.Operation{Key: keyserver.AuditClosedEntries}, Object: p.String()}
	return e.Unasked(ctx, r, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			_, err := tx.CloseACLEntries(ctx, p, now)
			return err
		})
	})
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// maxAsked is the maximum number of peers that one lookup calls concurrently.
const maxAsked = 8

// foreignPrincipals looks up the principals among the pairs that belong to peers, at these peers. The result lacks a
// principal if the peer does not return it or if the request is refused, which writes an audit row. If a peer reports
// that a principal is disabled or unknown, foreignPrincipals closes the principal's ACL entries here.
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

// lookupAt looks up principals of one peer at that peer. It returns no list and no error if the peer could not be
// asked. A principal with values that cannot be shown is missing in the list, but does not count as deleted.
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

// unlessPeers returns err if it concerns this key server: its audit log or database failed, or the caller disconnected.
// It returns nil if the peer caused err.
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

// closeEntries ends the ACL entries of a principal that its own key server has disabled or deleted. It ends their time
// windows now, so that readers of the ACL see the end, and an owner can undo it. No role is needed, because the gate
// has allowed the lookup. The change has its own audit row.
func (e *Engine) closeEntries(ctx context.Context, by keyserver.Caller, p keyserver.PrincipalRef) error {
	now := values.StampOf(e.Clock())
	open, err := e.Store.HasOpenACLEntries(ctx, p, now)
	if err != nil || !open {
		return err
	}
	r := gate.Request{By: by, Op: keyserver.Operation{Key: keyserver.AuditClosedEntries}, Object: p.String()}
	return e.PerformUnrequested(ctx, r, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			_, err := tx.CloseACLEntries(ctx, p, now)
			return err
		})
	})
}

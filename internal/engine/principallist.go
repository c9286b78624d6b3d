package engine

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// ListPrincipals implements keyserver.Principals.
func (e *Engine) ListPrincipals(ctx context.Context, by keyserver.Caller, f keyserver.PrincipalFilter) (keyserver.PrincipalPage, error) {
	page := keyserver.PrincipalPage{Pattern: f.Pattern(), OrderedBy: "name"}
	r := gate.Request{By: by, Op: keyserver.OpListPrincipals, Object: string(f.Type) + " " + page.Pattern}
	err := e.Perform(ctx, r, func() (err error) {
		page.Principals, err = windowed(f.Limit, f.Offset, func(limit, offset int) ([]keyserver.Principal, error) {
			f.Limit, f.Offset = limit, offset
			return e.Store.Principals(ctx, f)
		})
		return err
	})
	if err != nil {
		return keyserver.PrincipalPage{}, err
	}
	return page, nil
}

// windowed reads a part of a list, or the entire list if limit is 0. A response has at most MaxUnwindowed objects
// (contract 9.3). windowed reads one object more to detect a longer list.
func windowed[T any](limit, offset int, read func(limit, offset int) ([]T, error)) ([]T, error) {
	if limit < 0 || limit > keyserver.MaxUnwindowed || offset < 0 {
		return nil, fault.New(fault.InvalidArgument, "limit: must be from 0 to %d, and offset must not be negative", keyserver.MaxUnwindowed).Audited(fault.ReasonInvalidArgument)
	}
	if limit > 0 {
		return read(limit, offset)
	}
	all, err := read(keyserver.MaxUnwindowed+1, 0)
	if err == nil && len(all) > keyserver.MaxUnwindowed {
		return nil, fault.New(fault.InvalidArgument, "the list has more than %d objects, the limit of one response; page it with limit and offset",
			keyserver.MaxUnwindowed).Audited(fault.ReasonInvalidArgument)
	}
	return all, err
}

// LookupPrincipals implements keyserver.Principals. The result has the order of the pairs, without pairs that cannot be
// resolved. If a peer is the caller, the principals have fewer fields.
func (e *Engine) LookupPrincipals(ctx context.Context, by keyserver.Caller, pairs []keyserver.PrincipalRef) ([]keyserver.Principal, error) {
	found := []keyserver.Principal{}
	r := gate.Request{By: by, Op: keyserver.OpLookupPrincipals, Object: pairsObject(pairs)}
	err := e.Perform(ctx, r, func() error {
		if len(pairs) > keyserver.MaxLookup {
			return fault.New(fault.InvalidArgument, "principals: must have at most %d elements", keyserver.MaxLookup).Audited(fault.ReasonInvalidArgument)
		}
		local, err := e.localPrincipals(ctx, pairs)
		if err == nil && by.Peer != nil {
			err = e.reduce(ctx, local, by.Peer.System)
		}
		if err != nil {
			return err
		}
		foreign, err := e.foreignPrincipals(ctx, by, pairs)
		for _, pair := range pairs {
			if p, ok := local[pair]; ok {
				found = append(found, p)
			} else if p, ok := foreign[pair]; ok {
				found = append(found, p)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// pairsObject returns the object for the audit row: the only pair, or the number of pairs.
func pairsObject(pairs []keyserver.PrincipalRef) string {
	if len(pairs) == 1 {
		return pairs[0].String()
	}
	return fmt.Sprintf("%d principals", len(pairs))
}

// localPrincipals reads the principals among the pairs that belong to this key server.
func (e *Engine) localPrincipals(ctx context.Context, pairs []keyserver.PrincipalRef) (map[keyserver.PrincipalRef]keyserver.Principal, error) {
	var ids []keyserver.ID
	for _, pair := range pairs {
		if pair.System == e.System {
			ids = append(ids, pair.ID)
		}
	}
	list, err := e.Store.PrincipalsByID(ctx, ids)
	local := map[keyserver.PrincipalRef]keyserver.Principal{}
	for _, p := range list {
		local[p.Ref()] = p
	}
	return local, err
}

// reduce reduces principals to the fields that a peer may see in a lookup.
func (e *Engine) reduce(ctx context.Context, found map[keyserver.PrincipalRef]keyserver.Principal, peer keyserver.SystemID) error {
	for ref, p := range found {
		rows, err := e.CachedTrust(ctx, p.ID, peer)
		if err != nil {
			return err
		}
		found[ref] = access.LookupFields(rows, p, peer)
	}
	return nil
}

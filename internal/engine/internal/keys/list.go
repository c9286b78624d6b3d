package keys

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Limits of one call of ListKeys: the minimum number of keys that one query reads, and the maximum number of queries.
// They apply even if the caller may read only a small part of the keys.
const (
	leastKeyWindow = 64
	keyWindows     = 8
)

// ListKeys implements keyserver.KeyLives. It reads only keys with an ACL entry of the caller or one of its groups, so
// that its cost does not grow with the number of all keys.
func (ks *Keys) ListKeys(ctx context.Context, by keyserver.Caller, f keyserver.KeyFilter) (page keyserver.KeyPage, err error) {
	var who access.Subject
	r := gate.Request{By: by, Op: keyserver.OpListKeys, Object: f.Lineage.Base64()}
	err = ks.Perform(ctx, r, func() (err error) {
		page, err = ks.keysOf(ctx, who, f)
		return err
	}, func(_ context.Context, subject access.Subject) error {
		who = subject
		return nil
	})
	return page, err
}

func (ks *Keys) keysOf(ctx context.Context, who access.Subject, f keyserver.KeyFilter) (keyserver.KeyPage, error) {
	window, err := ks.keyWindow(ctx, who, f)
	if err != nil {
		return keyserver.KeyPage{}, err
	}
	var found []sqlstore.KeyRecord
	var page keyserver.KeyPage
	size := max(f.Limit+1, leastKeyWindow)
	for more, windows := true, 0; more && windows < keyWindows; windows++ {
		list, err := window(size)
		if err != nil {
			return keyserver.KeyPage{}, err
		}
		page.Next, more = "", len(list) == size
		if more {
			page.Next = values.NewHiddenLink(ks.System, list[size-1].ID)
		}
		for _, k := range list {
			if (f.State != "" && f.State != k.Life.State) || !ks.readable(k, who) {
				continue
			}
			if len(found) == f.Limit {
				page.Next, more = values.NewHiddenLink(ks.System, found[f.Limit-1].ID), false
				break
			}
			found = append(found, k.KeyRecord)
		}
	}
	page.Keys, err = ks.metadataOf(ctx, found)
	return page, err
}

func (ks *Keys) readable(k sqlstore.ListedKey, who access.Subject) bool {
	return access.Owns(k.List, who, ks.Clock()) || access.Evaluate(k.List, who, keyserver.Read, ks.Clock()).Allowed
}

// keyWindow returns a function that reads the next keys on which the filter and the ACL must still be checked. Each
// call continues after the last key of the previous call.
func (ks *Keys) keyWindow(ctx context.Context, who access.Subject, f keyserver.KeyFilter) (func(limit int) ([]sqlstore.ListedKey, error), error) {
	var after sqlstore.KeyRecord
	if f.After != "" {
		system, id, ok := f.After.Split()
		err := sqlstore.ErrNotFound
		if ok && system == ks.System {
			after, err = ks.Store.Key(ctx, id)
		}
		if errors.Is(err, sqlstore.ErrNotFound) {
			return nil, gate.Invalid("after: not a key of this key server; send next of an earlier page, or omit after")
		}
		if err != nil {
			return nil, err
		}
	}
	last := func(list []sqlstore.ListedKey) {
		if len(list) > 0 {
			after = list[len(list)-1].KeyRecord
		}
	}
	if f.Lineage != "" {
		system, first, ok := f.Lineage.Split()
		if !ok || system != ks.System {
			return nil, fault.New(fault.InvalidArgument, "lineage: not a lineage of this key server; list a lineage of a peer on that key server").Audited(fault.ReasonInvalidArgument)
		}
		return func(limit int) ([]sqlstore.ListedKey, error) {
			list, err := ks.Store.LineageKeysAfter(ctx, first, after.Life.Generation, limit)
			last(list)
			return list, err
		}, nil
	}
	entries := append([]keyserver.PrincipalRef{who.Principal}, who.Groups...)
	return func(limit int) ([]sqlstore.ListedKey, error) {
		list, err := ks.Store.KeysWithEntries(ctx, entries, after.ACL, limit)
		last(list)
		return list, err
	}, nil
}

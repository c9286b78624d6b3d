package keys

import (
	"bytes"
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MACBatch implements keyserver.Keys. The gate decides on each item. The audit rows of all items are durable before the
// first MAC is computed.
func (ks *Keys) MACBatch(ctx context.Context, by keyserver.Caller, items []keyserver.MACItem) ([]keyserver.MACResult, error) {
	keys, refusals, err := gate.AuthorizeAll(ctx, ks.Gate, by, keyserver.OpMACData, len(items), func(i int) (gate.Request, gate.Resolver[target]) {
		choice := keyserver.KeyChoice{Lineage: items[i].Lineage}
		r := choosing(by, keyserver.OpMACData, choice)
		if peer, ok := ks.Foreign(choice.Lineage); ok {
			return r, notForwarded(peer)
		}
		return r, ks.resolveKey(by, choice, makeMACs)
	})
	if err != nil {
		return nil, err
	}
	answers := make([]keyserver.MACResult, len(items))
	for i := range items {
		if answers[i].Err = refusals[i]; refusals[i] != nil {
			continue
		}
		answers[i].UsedKey = keys[i].used()
		if err := keys[i].mac(bytes.NewReader(items[i].Data), &answers[i].Sum); err != nil {
			return nil, ks.Failed(ctx, choosing(by, keyserver.OpMACData, keyserver.KeyChoice{Key: keys[i].Link()}), err)
		}
	}
	return answers, nil
}

// notForwarded returns a Resolver that refuses an item with a key of a peer. A batch is not forwarded: one commit has
// the rows of all items, and a forwarded batch would make up to a thousand calls to peers.
func notForwarded(peer keyserver.SystemID) gate.Resolver[target] {
	return func(context.Context, access.Subject) (target, error) {
		return target{}, fault.New(fault.InvalidArgument, "the lineage belongs to the system id %d, and items of a batch are not forwarded; send the item to POST /api/crypto/mac", peer).
			Audited(fault.ReasonNotForwarded)
	}
}

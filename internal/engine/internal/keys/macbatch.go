package keys

import (
	"bytes"
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MACBatch implements keyserver.Keys.
func (ks *Keys) MACBatch(ctx context.Context, by keyserver.Caller, items []keyserver.MACItem) ([]keyserver.MACResult, error) {
	results := make([]keyserver.MACResult, len(items))
	err := performAll(ctx, ks, by, keyserver.OpMACData, len(items), func(i int) (keyserver.KeyChoice, gate.Resolver[target]) {
		choice := keyserver.KeyChoice{Lineage: items[i].Lineage}
		return choice, ks.resolveKey(by, choice, makeMACs)
	}, func(i int, key target, refusal error) (err error) {
		if results[i].Err = refusal; refusal == nil {
			results[i].UsedKey = key.used()
			err = key.mac(bytes.NewReader(items[i].Data), &results[i].Sum)
		}
		return err
	})
	return results, err
}

// VerifyMACBatch implements keyserver.Keys.
func (ks *Keys) VerifyMACBatch(ctx context.Context, by keyserver.Caller, items []keyserver.MACCheck) ([]keyserver.MACVerdictResult, error) {
	results := make([]keyserver.MACVerdictResult, len(items))
	err := performAll(ctx, ks, by, keyserver.OpVerifyMAC, len(items), func(i int) (keyserver.KeyChoice, gate.Resolver[verification]) {
		return items[i].KeyChoice, ks.withOlderKeys(by, items[i].KeyChoice)
	}, func(i int, keys verification, refusal error) (err error) {
		if results[i].Err = refusal; refusal == nil {
			results[i].MACVerdict, err = verify(items[i], keys.cachedKey, keys.older)
		}
		return err
	})
	return results, err
}

// performAll authorizes the n items of a batch. After their audit rows are durable, it calls use for each item, with its
// key or its refusal. An item with a key of a peer is refused.
func performAll[T gate.Target](ctx context.Context, ks *Keys, by keyserver.Caller, op keyserver.Operation, n int,
	item func(i int) (keyserver.KeyChoice, gate.Resolver[T]), use func(i int, key T, refusal error) error) error {
	keys, refusals, err := gate.AuthorizeAll(ctx, ks.Gate, by, op, n, func(i int) (gate.Request, gate.Resolver[T]) {
		choice, resolve := item(i)
		if peer, ok := ks.Foreign(choice.Named()); ok {
			resolve = notForwarded[T](peer, op)
		}
		return choosing(by, op, choice), resolve
	})
	if err != nil {
		return err
	}
	for i, key := range keys {
		if err := use(i, key, refusals[i]); err != nil {
			return gate.WithoutRetry(ks.Failed(ctx, choosing(by, op, keyserver.KeyChoice{Key: key.Link()}), err))
		}
	}
	return nil
}

// notForwarded returns a Resolver that refuses an item with a key of a peer. A batch is not forwarded: one commit has
// the rows of all items, and a forwarded batch would need up to 1000 calls to peers.
func notForwarded[T gate.Target](peer keyserver.SystemID, op keyserver.Operation) gate.Resolver[T] {
	route := "POST /api/crypto/mac"
	if op == keyserver.OpVerifyMAC {
		route = "POST /api/crypto/mac/verify"
	}
	return func(context.Context, access.Subject) (none T, err error) {
		return none, fault.New(fault.InvalidArgument, "the key belongs to the system id %d, and items of a batch are not forwarded; send the item to %s", peer, route).
			Audited(fault.ReasonNotForwarded)
	}
}

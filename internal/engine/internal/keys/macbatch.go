package keys

import (
	"bytes"
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MACBatch implements keyserver.Keys. Each item passes the gate by itself; the rows
// of all decisions are durable before the first MAC is made.
func (ks *Keys) MACBatch(ctx context.Context, by keyserver.Caller, items []keyserver.MACItem) ([]keyserver.MACAnswer, error) {
	keys, answers := make([]chosen, len(items)), make([]keyserver.MACAnswer, len(items))
	refusals, err := ks.AuthorizeAll(ctx, by, keyserver.OpMACData, len(items), func(i int) (gate.Request, []gate.Check) {
		choice := keyserver.KeyChoice{Line: items[i].Line}
		return choosing(by, keyserver.OpMACData, choice, &keys[i]), []gate.Check{ks.isOwn(choice), ks.resolveKey(by, choice, makeMACs, &keys[i].heldKey)}
	})
	if err != nil {
		return nil, err
	}
	for i := range items {
		if answers[i].Err = refusals[i]; refusals[i] != nil {
			continue
		}
		answers[i].UsedKey = keys[i].used()
		if err := keys[i].mac(bytes.NewReader(items[i].Data), &answers[i].Sum); err != nil {
			return nil, ks.Failed(ctx, choosing(by, keyserver.OpMACData, keyserver.KeyChoice{Line: items[i].Line}, &keys[i]), err)
		}
	}
	return answers, nil
}

// isOwn is the check that this key server has the line itself. A batch is not
// forwarded: its rows are one commit, and a thousand calls of peers are not one
// request.
func (ks *Keys) isOwn(choice keyserver.KeyChoice) gate.Check {
	return func(context.Context, access.Subject) error {
		if peer, ok := ks.Foreign(choice.Line); ok {
			return fault.New(fault.InvalidArgument, "the line belongs to the system id %d, and no batch is forwarded; send the item to POST /api/crypto/mac", peer).
				Audited(fault.ReasonNotForwarded)
		}
		return nil
	}
}

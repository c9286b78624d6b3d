package engine

import (
	"bytes"
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MACBatch implements keyserver.Keys. Each item passes the gate by itself; the rows
// of all decisions are durable before the first MAC is made.
func (e *Engine) MACBatch(ctx context.Context, by keyserver.Caller, items []keyserver.MACItem) ([]keyserver.MACAnswer, error) {
	if err := e.restrained(by, len(items)); err != nil {
		return nil, err
	}
	if err := e.Entitled(ctx, by, keyserver.OpMACData); err != nil {
		return nil, err
	}
	keys, answers := make([]*heldKey, len(items)), make([]keyserver.MACAnswer, len(items))
	rows := make([]keyserver.AuditEntry, 0, len(items))
	var broken error
	for i := 0; i < len(items) && broken == nil; i++ {
		choice := keyserver.KeyChoice{Line: items[i].Line}
		r := choosing(by, keyserver.OpMACData, choice, &keys[i])
		err := e.authorise(ctx, r, []check{e.isOwn(choice), e.resolveKey(by, choice, makeMACs, &keys[i])})
		switch f := fault.As(err); {
		case err == nil:
			rows = append(rows, r.row(keyserver.Allowed, ""))
		case f != nil && f.Reason != "":
			rows, answers[i].Err = append(rows, r.refusedRow(err)), err
			e.Refusals.Count(partyOf(by), 1)
			if e.restrained(by, 1) != nil {
				e.Refusals.Count(partyOf(by), len(items)-i) // a batch costs its items, decided or not
				broken = e.restrained(by, len(items))
			}
		default: // no decision: what was counted so far keeps its rows
			rows, broken = append(rows, r.refusedRow(err)), err
		}
	}
	// A use that was counted has a row, even where the caller has gone away.
	if err := e.Auditor.WriteAll(context.WithoutCancel(ctx), rows); err != nil {
		return nil, err
	}
	if broken != nil {
		return nil, broken
	}
	for i := range items {
		if answers[i].Err != nil {
			continue
		}
		answers[i].UsedKey = keys[i].used()
		if err := keys[i].mac(bytes.NewReader(items[i].Data), &answers[i].Sum); err != nil {
			return nil, e.failed(ctx, choosing(by, keyserver.OpMACData, keyserver.KeyChoice{Line: items[i].Line}, &keys[i]), err)
		}
	}
	return answers, nil
}

// isOwn is the check that this key server has the line itself. A batch is not
// forwarded: its rows are one commit, and a thousand calls of peers are not one
// request.
func (e *Engine) isOwn(choice keyserver.KeyChoice) check {
	return func(context.Context, access.Subject) error {
		if peer, ok := e.foreign(choice.Line); ok {
			return fault.New(fault.InvalidArgument, "the line belongs to the system id %d, and no batch is forwarded; send the item to POST /api/crypto/mac", peer).
				Audited(fault.ReasonNotForwarded)
		}
		return nil
	}
}

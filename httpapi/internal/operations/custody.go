package operations

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func getCustody(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.Custody, error) {
	custody, err := ops.Custody(ctx, by)
	if err != nil {
		return schema.Custody{}, err
	}
	return schema.Custody{
		KEK: kekOf(custody.KEK), DataKeys: Convert(custody.DataKeys, dataKeyOf), Rewrap: rewrapOf(custody.Rewrap), Detail: custodyDetail(custody),
	}, nil
}

func custodyDetail(c keyserver.Custody) string {
	detail := "all keys are encrypted under the active data key"
	for _, k := range c.DataKeys {
		if k.State == keyserver.DataKeyRetiring {
			detail = fmt.Sprintf("%d of %d keys are encrypted under the active data key; the old data key is retired when no key is under it and all row MACs are new", c.Rewrap.Done, c.Rewrap.Total)
		}
	}
	if c.KEK.PreviousNeeded != nil && !*c.KEK.PreviousNeeded {
		detail += "; this replica no longer needs --kek-previous"
	}
	return detail
}

func rotateDataKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.DataKeyRotated, error) {
	r, err := ops.RotateDataKey(ctx, by)
	return schema.DataKeyRotated{
		Saved: r.Saved, DataKeyID: schema.HexID(r.DataKey), KEK: kekOf(r.Custody.KEK), DataKeys: Convert(r.Custody.DataKeys, dataKeyOf),
		Rewrap: rewrapOf(r.Custody.Rewrap), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func kekOf(k keyserver.KEK) schema.KEK {
	return schema.KEK{Scheme: k.Scheme, Fingerprint: k.Fingerprint, PreviousNeeded: k.PreviousNeeded}
}

func rewrapOf(r keyserver.Rewrap) schema.Rewrap {
	return schema.Rewrap{Done: r.Done, Total: r.Total, Refused: r.Refused}
}

func dataKeyOf(k keyserver.DataKey) schema.DataKey {
	return schema.DataKey{ID: schema.HexID(k.ID), CreatedAt: instant(k.CreatedAt), State: string(k.State), Wrapped: k.Wrapped}
}

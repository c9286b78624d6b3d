package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func macBatch(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.MACBatchRequest) (schema.MACBatchResponse, error) {
	items := make([]keyserver.MACItem, len(in.Items))
	for i, item := range in.Items {
		items[i] = keyserver.MACItem{Lineage: keyserver.HiddenLink(item.Lineage), Data: item.Data}
	}
	answers, err := ops.MACBatch(ctx, by, items)
	if err != nil {
		return schema.MACBatchResponse{}, err
	}
	out := schema.MACBatchResponse{Items: make([]schema.MACItemResponse, len(answers))}
	for i := range answers {
		out.Items[i] = macItemOf(&answers[i])
	}
	return out, nil
}

func macItemOf(m *keyserver.MACResult) schema.MACItemResponse {
	if m.Err != nil {
		item := schema.MACItemResponse{Code: string(fault.CodeOf(m.Err))}
		if f := fault.As(m.Err); f != nil {
			item.Detail = f.Detail
		}
		return item
	}
	algorithm, n := string(keyserver.HMACSHA384), len(m.Sum)
	return schema.MACItemResponse{Algorithm: &algorithm, MAC: m.Sum[:], MACBytes: &n, TTag: schema.HiddenLink(m.Link), Generation: &m.Generation}
}

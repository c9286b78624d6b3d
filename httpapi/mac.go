package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func mac(x *exchange) (schema.MACResponse, error) {
	body, err := hmacbody.Read(x.route.Form, x.body(), x.spool(keyserver.OpMACData))
	if err != nil {
		return schema.MACResponse{}, err
	}
	defer body.Close()
	m, err := x.api.Operations.MAC(x.ctx, x.call.by, keyserver.MACRequest{Line: body.Link(), Message: body})
	if err != nil {
		return schema.MACResponse{}, err
	}
	return schema.MACResponse{
		Algorithm: string(keyserver.HMACSHA384), MAC: m.Sum[:], MACBytes: len(m.Sum), TTag: schema.HiddenLink(m.Link), Generation: m.Generation,
	}, nil
}

func verifyMAC(x *exchange) (schema.VerifyMACResponse, error) {
	body, err := hmacbody.Read(x.route.Form, x.body(), x.spool(keyserver.OpVerifyMAC))
	if err != nil {
		return schema.VerifyMACResponse{}, err
	}
	defer body.Close()
	v, err := x.api.Operations.VerifyMAC(x.ctx, x.call.by, keyserver.MACCheck{KeyChoice: body.Choice(), Message: body, MAC: body.MAC})
	if err != nil {
		return schema.VerifyMACResponse{}, err
	}
	return schema.VerifyMACResponse{Valid: v.Valid, TTag: schema.HiddenLink(v.Link), Generation: v.Generation}, nil
}

func macBatch(a *API, ctx context.Context, c call, in schema.MACBatchRequest) (schema.MACBatchResponse, error) {
	items := make([]keyserver.MACItem, len(in.Items))
	for i, item := range in.Items {
		items[i] = keyserver.MACItem{Line: keyserver.HiddenLink(item.Lineage), Data: item.Data}
	}
	answers, err := a.Operations.MACBatch(ctx, c.by, items)
	if err != nil {
		return schema.MACBatchResponse{}, err
	}
	out := schema.MACBatchResponse{Items: make([]schema.MACItemResponse, len(answers))}
	for i := range answers {
		out.Items[i] = macItemOf(&answers[i])
	}
	return out, nil
}

func macItemOf(m *keyserver.MACAnswer) schema.MACItemResponse {
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

package operations

import (
	"bytes"
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func macBatch(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.MACBatchRequest) (schema.MACBatchResponse, error) {
	results, err := ops.MACBatch(ctx, by, Convert(in.Items, func(item schema.MACItem) keyserver.MACItem {
		return keyserver.MACItem{Lineage: keyserver.HiddenLink(item.Lineage), Data: item.Data}
	}))
	return schema.MACBatchResponse{Items: Convert(results, macItemOf)}, err
}

func macItemOf(m keyserver.MACResult) schema.MACItemResponse {
	if m.Err != nil {
		return schema.MACItemResponse{ItemFailure: failureOf(m.Err)}
	}
	algorithm, n := string(keyserver.HMACSHA384), len(m.Sum)
	return schema.MACItemResponse{Algorithm: &algorithm, MAC: m.Sum[:], MACBytes: &n, TTag: schema.HiddenLink(m.Link), Generation: &m.Generation}
}

func verifyMACBatch(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.VerifyMACBatchRequest) (schema.VerifyMACBatchResponse, error) {
	results, err := ops.VerifyMACBatch(ctx, by, Convert(in.Items, func(item schema.VerifyMACItem) keyserver.MACCheck {
		return keyserver.MACCheck{
			KeyChoice: choiceOf(item.TTag, item.Lineage), Message: bytes.NewReader(item.Data),
			MAC: func() [keyserver.MACSize]byte { return [keyserver.MACSize]byte(item.MAC) },
		}
	}))
	return schema.VerifyMACBatchResponse{Items: Convert(results, verdictItemOf)}, err
}

func verdictItemOf(v keyserver.MACVerdictResult) schema.VerifyMACItemResponse {
	if v.Err != nil {
		return schema.VerifyMACItemResponse{ItemFailure: failureOf(v.Err)}
	}
	return schema.VerifyMACItemResponse{Valid: &v.Valid, TTag: schema.HiddenLink(v.Link), Generation: &v.Generation}
}

func failureOf(err error) schema.ItemFailure {
	failure := schema.ItemFailure{Code: string(fault.CodeOf(err))}
	if f := fault.As(err); f != nil {
		failure.Detail = f.Detail
	}
	return failure
}

package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func listOperations(a *API, ctx context.Context, c call, _ nothing) (schema.OperationList, error) {
	list, err := a.Operations.ListOperations(ctx, c.by)
	if err != nil {
		return schema.OperationList{}, err
	}
	return schema.OperationList{Count: len(list), Operations: convert(list, func(o keyserver.Operation) schema.Operation {
		return schema.Operation{ID: schema.HexID(o.ID), Name: o.Name, Operation: o.Key, Duty: string(o.Duty)}
	})}, nil
}

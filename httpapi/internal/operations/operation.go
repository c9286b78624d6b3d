package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func listOperations(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.OperationList, error) {
	list, err := ops.ListOperations(ctx, by)
	if err != nil {
		return schema.OperationList{}, err
	}
	return schema.OperationList{Count: len(list), Operations: Convert(list, func(o keyserver.Operation) schema.Operation {
		return schema.Operation{ID: schema.HexID(o.ID), Name: o.Name, Operation: o.Key, Duty: string(o.Duty)}
	})}, nil
}

package operations

import (
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Convert maps a list. The result is never nil, so that an empty list is [] in JSON.
func Convert[A, B any](list []A, one func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = one(v)
	}
	return out
}

// optional converts a value that may be missing.
func optional[A, B any](from *A, one func(A) B) *B {
	if from == nil {
		return nil
	}
	to := one(*from)
	return &to
}

func hexIDs(ids []keyserver.ID) []schema.HexID {
	return Convert(ids, func(id keyserver.ID) schema.HexID { return schema.HexID(id) })
}

// idsOf converts ids. It keeps nil and empty distinct: a missing list is not an empty list.
func idsOf(ids []schema.HexID) []keyserver.ID {
	if ids == nil {
		return nil
	}
	return Convert(ids, func(id schema.HexID) keyserver.ID { return keyserver.ID(id) })
}

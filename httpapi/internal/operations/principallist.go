package operations

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func listPrincipals(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.PrincipalQuery) (schema.PrincipalPage, error) {
	f := keyserver.PrincipalFilter{Type: keyserver.PrincipalType(in.Type), Prefix: in.Name}
	var err error
	if f.Limit, f.Offset, err = windowOf(in.Limit, in.Offset); err != nil {
		return schema.PrincipalPage{}, err
	}
	page, err := ops.ListPrincipals(ctx, by, f)
	if err != nil {
		return schema.PrincipalPage{}, err
	}
	return schema.PrincipalPage{
		Type: in.Type, ClassName: f.Type.ClassName(), Count: len(page.Principals), Principals: Convert(page.Principals, principalOf),
		Page: schema.Page{
			Applied: f.Limit > 0, Limit: f.Limit, Offset: f.Offset,
			Name: in.Name, Pattern: page.Pattern, OrderedBy: page.OrderedBy,
		},
		Detail: windowDetail(len(page.Principals), f.Limit),
	}, nil
}

// windowOf decodes limit and offset. Without a limit, the list is complete, and an offset
// is refused, even 0.
func windowOf(limit, offset *int) (l, o int, err error) {
	if limit == nil {
		if offset != nil {
			err = fault.Field("offset", "needs limit; send both, or leave offset out")
		}
		return 0, 0, err
	}
	if offset != nil {
		o = *offset
	}
	return *limit, o, nil
}

func windowDetail(n, limit int) string {
	switch {
	case limit == 0:
		return "all matching objects, because limit was not sent"
	case n < limit:
		return "the last page; it has fewer objects than limit"
	default:
		return "a full page; there may be more, request them with a higher offset"
	}
}

func lookupPrincipals(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.LookupPrincipalsRequest) (schema.PrincipalsFound, error) {
	found, err := ops.LookupPrincipals(ctx, by, Convert(in.Principals, refOf))
	if err != nil {
		return schema.PrincipalsFound{}, err
	}
	return schema.PrincipalsFound{
		Principals: Convert(found, principalOf), Requested: len(in.Principals),
		Detail: fmt.Sprintf("%d of %d pairs were found; the others are absent from the list", len(found), len(in.Principals)),
	}, nil
}

func refOf(p schema.PrincipalPair) keyserver.PrincipalRef {
	return keyserver.PrincipalRef{System: keyserver.SystemID(p.SystemID), ID: keyserver.ID(p.PrincipalID)}
}

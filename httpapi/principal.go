package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func getPrincipal(a *API, ctx context.Context, c call, in byID) (schema.Principal, error) {
	p, err := a.Operations.Principal(ctx, c.by, keyserver.ID(in.ID))
	if err != nil {
		return schema.Principal{}, err
	}
	return principalOf(p), nil
}

func createPasswordPrincipal(a *API, ctx context.Context, c call, in schema.CreatePasswordPrincipalRequest) (schema.PrincipalSaved, error) {
	r, err := a.Operations.CreatePasswordPrincipal(ctx, c.by, keyserver.NewPasswordPrincipal{
		Name: in.Name, Password: in.Password.Reveal(), Roles: idsOf(in.RoleIDs),
	})
	out := schema.PrincipalSaved{Saved: r.Saved, Verdict: schema.Verdict{Detail: r.Detail}}
	if r.Principal != nil {
		p := principalOf(*r.Principal)
		out.Principal = &p
	}
	return out, err
}

func principalOf(p keyserver.Principal) schema.Principal {
	return schema.Principal{
		ID: schema.HexID(p.ID), PrincipalID: schema.DecimalID(p.ID), SystemID: schema.SystemID(p.System),
		ClassName: p.Type.ClassName(), Name: p.Name, Disabled: p.Flags.Disabled(),
		RoleIDs: hexIDs(p.Roles), GroupIDs: hexIDs(p.Groups),
	}
}

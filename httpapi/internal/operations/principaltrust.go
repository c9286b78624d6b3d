package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func listPrincipalTrusts(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.PrincipalTrustsQuery) (schema.PrincipalTrustList, error) {
	limit, offset, err := windowOf(in.Limit, in.Offset)
	if err != nil {
		return schema.PrincipalTrustList{}, err
	}
	filter := keyserver.PrincipalTrustFilter{
		Principal: (*keyserver.ID)(in.PrincipalID), Server: (*keyserver.SystemID)(in.TrustedServerSystemID), Limit: limit, Offset: offset,
	}
	list, err := ops.PrincipalTrusts(ctx, by, filter)
	return schema.PrincipalTrustList{Count: len(list), PrincipalTrusts: Convert(list, principalTrustOf)}, err
}

func createPrincipalTrust(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.CreatePrincipalTrustRequest) (schema.PrincipalTrustSaved, error) {
	r, err := ops.CreatePrincipalTrust(ctx, by, keyserver.PrincipalTrust{
		Principal: keyserver.ID(in.PrincipalID), Server: keyserver.SystemID(in.TrustedServerSystemID), Flag: trustFlagOf(in.Flag),
	})
	return principalTrustSavedOf(r), err
}

func updatePrincipalTrust(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.UpdatePrincipalTrustRequest) (schema.PrincipalTrustSaved, error) {
	r, err := ops.UpdatePrincipalTrust(ctx, by, keyserver.PrincipalTrustChange{ID: keyserver.ID(in.ID), Flag: trustFlagOf(in.Flag)})
	return principalTrustSavedOf(r), err
}

func deletePrincipalTrust(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ByID) (schema.PrincipalTrustGone, error) {
	r, err := ops.DeletePrincipalTrust(ctx, by, keyserver.ID(in.ID))
	return schema.PrincipalTrustGone{
		ID: schema.HexID(r.ID), Gone: r.Gone, PrincipalTrust: principalTrustOf(r.Trust), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

// trustFlagOf returns 0 for an unknown label; the operations refuse 0.
func trustFlagOf(label string) keyserver.TrustFlag {
	flag, _ := keyserver.ParseTrustFlag(label)
	return flag
}

func principalTrustSavedOf(r verified.PrincipalTrustSaved) schema.PrincipalTrustSaved {
	return schema.PrincipalTrustSaved{Saved: r.Saved, Verdict: schema.Verdict{Detail: r.Detail}, PrincipalTrust: optional(r.Trust, principalTrustOf)}
}

func principalTrustOf(t keyserver.PrincipalTrust) schema.PrincipalTrust {
	principal, server, system := schema.HexID(t.Principal), schema.HexID(values.IDFromUint64(uint64(t.Server))), schema.SystemID(t.Server)
	flag := int(t.Flag)
	return schema.PrincipalTrust{
		ID: schema.HexID(t.ID), PrincipalID: &principal, TrustedServerID: &server, TrustedServerSystemID: &system,
		Flag: &flag, FlagLabel: known(t.Flag.Label()),
	}
}

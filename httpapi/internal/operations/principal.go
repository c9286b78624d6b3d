package operations

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func getPrincipal(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ByID) (schema.Principal, error) {
	p, err := ops.Principal(ctx, by, keyserver.ID(in.ID))
	if err != nil {
		return schema.Principal{}, err
	}
	return principalOf(p), nil
}

func createPasswordPrincipal(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.CreatePasswordPrincipalRequest) (schema.PrincipalSaved, error) {
	r, err := ops.CreatePasswordPrincipal(ctx, by, keyserver.NewPasswordPrincipal{
		Name: in.Name, Password: in.Password.Reveal(), Roles: idsOf(in.RoleIDs),
	})
	return principalSavedOf(r), err
}

func createLDAPPrincipal(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.CreateLDAPPrincipalRequest) (schema.PrincipalSaved, error) {
	r, err := ops.CreatePrincipal(ctx, by, keyserver.NewPrincipal{
		Type: keyserver.LDAPPrincipal, Name: in.Name, Roles: idsOf(in.RoleIDs),
	})
	return principalSavedOf(r), err
}

func createXAuthPrincipal(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.CreateXAuthPrincipalRequest) (schema.PrincipalSaved, error) {
	r, err := ops.CreatePrincipal(ctx, by, keyserver.NewPrincipal{
		Type: keyserver.XAuthPrincipal, Name: in.Name, Roles: idsOf(in.RoleIDs),
		Identity: &keyserver.Identity{Issuer: in.Issuer, Subject: in.Subject, Audiences: in.Audiences},
	})
	return principalSavedOf(r), err
}

func updatePrincipalFlags(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.UpdatePrincipalFlagsRequest) (schema.PrincipalFlagsSaved, error) {
	change, asked := flagChangeOf(in)
	if len(asked) == 0 {
		return schema.PrincipalFlagsSaved{}, fault.Field("delegation", "is missing, and so is disabled; send at least one of them")
	}
	change.ID = keyserver.ID(in.ID)
	r, err := ops.UpdatePrincipalFlags(ctx, by, change)
	return schema.PrincipalFlagsSaved{
		ID: in.ID, Requested: in, Asked: asked, Saved: r.Saved,
		Before: flagsOf(r.Before), After: flagsOf(r.After), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

// flagChangeOf converts names of flags to bits. The flag disabled is stored as the inverse of its bit.
func flagChangeOf(in schema.UpdatePrincipalFlagsRequest) (change keyserver.FlagChange, asked []string) {
	name := func(name string, bit keyserver.Flags, set bool) {
		asked = append(asked, name)
		change.Mask |= bit
		if set {
			change.Value |= bit
		}
	}
	if in.Delegation != nil {
		name("delegation", keyserver.FlagDelegation, *in.Delegation)
	}
	if in.Disabled != nil {
		name("disabled", keyserver.FlagEnable, !*in.Disabled)
	}
	return change, asked
}

func flagsOf(f keyserver.Flags) schema.PrincipalFlags {
	return schema.PrincipalFlags{
		Flags: int64(f), FlagsHex: fmt.Sprintf("0x%08x", uint32(f)),
		Delegation: f.Delegation(), Disabled: f.Disabled(), SystemDefined: f.SystemDefined(),
	}
}

func updatePrincipalRoles(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.UpdatePrincipalRolesRequest) (schema.PrincipalRolesSaved, error) {
	r, err := ops.SetPrincipalRoles(ctx, by, keyserver.PrincipalRoles{ID: keyserver.ID(in.ID), Roles: idsOf(in.RoleIDs)})
	return schema.PrincipalRolesSaved{
		ID: in.ID, RequestedRoleIDs: hexIDs(r.Requested.Roles), Saved: r.Saved,
		Principal: principalOf(r.Principal), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func deletePrincipal(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.DeletePrincipalRequest) (schema.PrincipalGone, error) {
	d := keyserver.PrincipalDeletion{ID: keyserver.ID(in.ID)}
	if in.Heir != nil {
		d.NewOwner = keyserver.ID(*in.Heir)
	}
	r, err := ops.DeletePrincipal(ctx, by, d)
	return schema.PrincipalGone{
		ID: in.ID, Gone: r.Gone, Principal: principalOf(r.Principal),
		SessionsEnded: r.Done.Sessions, EntriesClosed: r.Done.Entries, Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func principalSavedOf(r verified.PrincipalSaved) schema.PrincipalSaved {
	return schema.PrincipalSaved{Saved: r.Saved, Verdict: schema.Verdict{Detail: r.Detail}, Principal: optional(r.Principal, principalOf)}
}

func principalOf(p keyserver.Principal) schema.Principal {
	out := schema.Principal{
		ID: schema.HexID(p.ID), PrincipalID: schema.DecimalID(p.ID), SystemID: schema.SystemID(p.System),
		ClassName: p.Type.ClassName(), Name: p.Name, Disabled: p.Flags.Disabled(),
		RoleIDs: hexIDs(p.Roles), GroupIDs: hexIDs(p.Groups),
		Delegation: p.Flags.Delegation(), SystemDefined: p.Flags.SystemDefined(),
	}
	if len(p.Delegates) > 0 {
		out.Delegates = hexIDs(p.Delegates)
	}
	if p.Identity != nil {
		out.Issuer, out.Subject, out.Audiences = p.Identity.Issuer, p.Identity.Subject, p.Identity.Audiences
	}
	return out
}

package operations

import (
	"context"
	"encoding/hex"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func listACLTemplates(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ACLTemplateQuery) (schema.ACLTemplateList, error) {
	list, err := ops.ACLTemplates(ctx, by, keyserver.ACLTemplateQuery{Digests: in.IncludeDigests})
	if err != nil {
		return schema.ACLTemplateList{}, err
	}
	return schema.ACLTemplateList{Count: len(list), Templates: Convert(list, aclTemplateOf)}, nil
}

func createACLTemplate(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ACLTemplateRequest) (schema.ACLTemplateSaved, error) {
	r, err := ops.CreateACLTemplate(ctx, by, in.Name)
	return aclTemplateSavedOf(r), err
}

func renameACLTemplate(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.RenameACLTemplateRequest) (schema.ACLTemplateSaved, error) {
	r, err := ops.RenameACLTemplate(ctx, by, keyserver.ACLTemplateChange{ID: keyserver.ID(in.ID), Name: in.Name})
	return aclTemplateSavedOf(r), err
}

func deleteACLTemplate(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ByID) (schema.ACLTemplateGone, error) {
	r, err := ops.DeleteACLTemplate(ctx, by, keyserver.ID(in.ID))
	return schema.ACLTemplateGone{
		ID: schema.HexID(r.ID), Gone: r.Gone, Template: aclTemplateOf(r.Template), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func listTemplateMembers(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ByID) (schema.TemplateMemberList, error) {
	t, err := ops.ACLTemplate(ctx, by, keyserver.ID(in.ID))
	if err != nil {
		return schema.TemplateMemberList{}, err
	}
	return schema.TemplateMemberList{
		ID: schema.HexID(t.ID), Count: len(t.Members), Members: Convert(t.Members, templateMemberOf), Writable: t.Writable,
		Digest: hex.EncodeToString(t.MembersDigest),
	}, nil
}

func putTemplateMember(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.SetACLTemplateMemberRequest) (schema.TemplateMemberSaved, error) {
	r, err := ops.PutTemplateMember(ctx, by, keyserver.TemplateMembership{
		Template: keyserver.ID(in.ID), Member: templateMemberFrom(in.TemplateMemberRequest),
	})
	return schema.TemplateMemberSaved{
		ID: schema.HexID(r.ID), RequestedRights: in.Rights, RequestedRightNames: in.Rights.Names(),
		Saved: r.Done, Missing: r.Missing, Members: Convert(r.Template.Members, templateMemberOf), Verdict: schema.Verdict{Detail: r.Detail},
		Member: optional(r.Member, templateMemberOf),
	}, err
}

func removeTemplateMember(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.RemoveACLTemplateMemberRequest) (schema.TemplateMemberGone, error) {
	principal := keyserver.PrincipalRef{System: keyserver.SystemID(in.SystemID), ID: keyserver.ID(in.PrincipalID)}
	r, err := ops.RemoveTemplateMember(ctx, by, keyserver.TemplateMemberRef{Template: keyserver.ID(in.ID), Principal: principal})
	return schema.TemplateMemberGone{
		ID: schema.HexID(r.ID), SystemID: in.SystemID, PrincipalID: in.PrincipalID, Gone: r.Done,
		Members: Convert(r.Template.Members, templateMemberOf), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func aclTemplateOf(t keyserver.ACLTemplate) schema.ACLTemplate {
	return schema.ACLTemplate{ID: schema.HexID(t.ID), Name: t.Name, MemberCount: t.MemberCount, Writable: t.Writable, MembersDigest: hex.EncodeToString(t.MembersDigest)}
}

func aclTemplateSavedOf(r verified.ACLTemplateResult) schema.ACLTemplateSaved {
	return schema.ACLTemplateSaved{
		ID: schema.HexID(r.ID), Requested: r.Requested, Saved: r.Saved, Missing: r.Missing, Verdict: schema.Verdict{Detail: r.Detail},
		Template: optional(r.Template, aclTemplateOf),
	}
}

func templateMemberFrom(in schema.TemplateMemberRequest) keyserver.TemplateMember {
	m := keyserver.TemplateMember{
		Principal: keyserver.PrincipalRef{System: keyserver.SystemID(in.SystemID), ID: keyserver.ID(in.PrincipalID)},
		Rights:    keyserver.Rights(in.Rights),
		MaxUsage:  keyserver.NoUsageLimit,
	}
	if in.MaxUsage != nil {
		m.MaxUsage = *in.MaxUsage
	}
	if in.StartTime != nil {
		m.Start = keyserver.Stamp(*in.StartTime)
	}
	if in.EndTime != nil {
		m.End = keyserver.Stamp(*in.EndTime)
	}
	return m
}

func templateMemberOf(m keyserver.TemplateMember) schema.TemplateMember {
	return schema.TemplateMember{
		PrincipalID: schema.DecimalID(m.Principal.ID), SystemID: schema.SystemID(m.Principal.System),
		Rights: schema.Rights(m.Rights), RightNames: m.Rights.Names(), MaxUsage: m.MaxUsage,
		StartTime: schema.Stamp(m.Start), StartTimeUnset: m.Start.IsUnset(),
		EndTime: schema.Stamp(m.End), EndTimeUnset: m.End.IsUnset(),
	}
}

package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func createGroup(a *API, ctx context.Context, c call, in schema.CreateGroupRequest) (schema.PrincipalSaved, error) {
	r, err := a.Operations.CreatePrincipal(ctx, c.by, keyserver.NewPrincipal{
		Type: keyserver.GroupPrincipal, Name: in.Name, Roles: idsOf(in.RoleIDs),
	})
	return principalSavedOf(r), err
}

func listGroupMembers(a *API, ctx context.Context, c call, in schema.ListGroupMembersRequest) (schema.GroupMembers, error) {
	limit, offset, err := windowOf(in.Limit, in.Offset)
	if err != nil {
		return schema.GroupMembers{}, err
	}
	members, err := a.Operations.GroupMembers(ctx, c.by, keyserver.GroupFilter{Group: keyserver.ID(in.Group), Limit: limit, Offset: offset})
	if err != nil {
		return schema.GroupMembers{}, err
	}
	return schema.GroupMembers{
		GroupID: in.Group, Count: len(members), Members: convert(members, principalOf),
		Page:   schema.MembersPage{Applied: limit > 0, Limit: limit, Offset: offset, OrderedBy: "id"},
		Detail: windowDetail(len(members), limit),
	}, nil
}

func membershipOf(in schema.GroupMemberRequest) keyserver.Membership {
	return keyserver.Membership{Group: keyserver.ID(in.Group), Member: keyserver.ID(in.Member)}
}

func addGroupMember(a *API, ctx context.Context, c call, in schema.GroupMemberRequest) (schema.GroupMemberSaved, error) {
	r, err := a.Operations.AddGroupMember(ctx, c.by, membershipOf(in))
	return schema.GroupMemberSaved{
		GroupID: in.Group, Saved: r.Done, Member: principalOf(r.Member), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func removeGroupMember(a *API, ctx context.Context, c call, in schema.GroupMemberRequest) (schema.GroupMemberGone, error) {
	r, err := a.Operations.RemoveGroupMember(ctx, c.by, membershipOf(in))
	return schema.GroupMemberGone{
		GroupID: in.Group, Gone: r.Done, Member: principalOf(r.Member), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

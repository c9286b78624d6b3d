package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func createGroup(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.CreateGroupRequest) (schema.PrincipalSaved, error) {
	r, err := ops.CreatePrincipal(ctx, by, keyserver.NewPrincipal{
		Type: keyserver.GroupPrincipal, Name: in.Name, Roles: idsOf(in.RoleIDs),
	})
	return principalSavedOf(r), err
}

func listGroupMembers(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ListGroupMembersRequest) (schema.GroupMembers, error) {
	limit, offset, err := windowOf(in.Limit, in.Offset)
	if err != nil {
		return schema.GroupMembers{}, err
	}
	members, err := ops.GroupMembers(ctx, by, keyserver.GroupFilter{Group: keyserver.ID(in.Group), Limit: limit, Offset: offset})
	if err != nil {
		return schema.GroupMembers{}, err
	}
	return schema.GroupMembers{
		GroupID: in.Group, Count: len(members), Members: Convert(members, principalOf),
		Page:   schema.MembersPage{Applied: limit > 0, Limit: limit, Offset: offset, OrderedBy: "id"},
		Detail: windowDetail(len(members), limit),
	}, nil
}

func membershipOf(in schema.GroupMemberRequest) keyserver.Membership {
	return keyserver.Membership{Group: keyserver.ID(in.Group), Member: keyserver.ID(in.Member)}
}

func addGroupMember(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.GroupMemberRequest) (schema.GroupMemberSaved, error) {
	r, err := ops.AddGroupMember(ctx, by, membershipOf(in))
	return schema.GroupMemberSaved{
		GroupID: in.Group, Saved: r.Done, Member: principalOf(r.Member), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func removeGroupMember(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.GroupMemberRequest) (schema.GroupMemberGone, error) {
	r, err := ops.RemoveGroupMember(ctx, by, membershipOf(in))
	return schema.GroupMemberGone{
		GroupID: in.Group, Gone: r.Done, Member: principalOf(r.Member), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

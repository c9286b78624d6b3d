package verified

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MembershipResult is the result of adding or removing a group member.
type MembershipResult struct {
	Group  keyserver.ID
	Done   bool                // the change is visible after the write
	Member keyserver.Principal // as read back
	Detail string
}

// GroupMembers reads a window of a group's members, ordered by id.
func (s *Service) GroupMembers(ctx context.Context, by keyserver.Caller, f keyserver.GroupFilter) ([]keyserver.Principal, error) {
	if err := requireID("gid", f.Group); err != nil {
		return nil, err
	}
	if err := requireWindow(f.Limit, f.Offset); err != nil {
		return nil, err
	}
	return s.ks.GroupMembers(ctx, by, f)
}

// AddGroupMember adds a principal to a group and verifies that. Adding an existing member succeeds and changes nothing.
func (s *Service) AddGroupMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership) (MembershipResult, error) {
	return s.changeMember(ctx, by, m, membershipChange{
		in: true, write: s.ks.AddGroupMember, bad: fault.NotSaved,
		refuse: func(p keyserver.Principal) error {
			if p.Type == keyserver.GroupPrincipal {
				return fault.New(fault.BadRequest, "pid: is a group, which cannot be a member of a group; name a principal of another type")
			}
			return nil
		},
	})
}

// RemoveGroupMember removes a principal from a group and verifies that.
func (s *Service) RemoveGroupMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership) (MembershipResult, error) {
	return s.changeMember(ctx, by, m, membershipChange{
		in: false, write: s.ks.RemoveGroupMember, bad: fault.NotRemoved,
		refuse: func(p keyserver.Principal) error {
			if !slices.Contains(p.Groups, m.Group) {
				return fault.New(fault.NotFound, "principal %q is not a member of the group", p.Name)
			}
			return nil
		},
	})
}

// membershipChange describes the addition or the removal of a member.
type membershipChange struct {
	in     bool
	write  func(ctx context.Context, by keyserver.Caller, m keyserver.Membership) error
	bad    fault.Code
	refuse func(member keyserver.Principal) error
}

// membership is a principal and the group of the change.
type membership struct{ group, member keyserver.Principal }

func (s *Service) changeMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership, change membershipChange) (MembershipResult, error) {
	if err := requireID("gid", m.Group); err != nil {
		return MembershipResult{}, err
	}
	if err := requireID("pid", m.Member); err != nil {
		return MembershipResult{}, err
	}
	return verifiedWrite[membership, MembershipResult]{
		read: func(ctx context.Context) (membership, error) { return s.membership(ctx, by, m) },
		refuse: func(before membership) error {
			if before.group.Type != keyserver.GroupPrincipal {
				return fault.New(fault.NotFound, "gid: no group has the id %s", m.Group)
			}
			if err := refuseUpdate(by, before.member); err != nil {
				return err
			}
			return change.refuse(before.member)
		},
		write: func(ctx context.Context, _ membership) error { return change.write(ctx, by, m) },
		verdict: func(_, after membership) (MembershipResult, error) {
			return judgeMembership(m.Group, after.member, change)
		},
		unread: fault.ReadbackFailed,
	}.do(ctx)
}

func (s *Service) membership(ctx context.Context, by keyserver.Caller, m keyserver.Membership) (both membership, err error) {
	if both.group, err = s.ks.Principal(ctx, by, m.Group); err != nil {
		return both, err
	}
	both.member, err = s.ks.Principal(ctx, by, m.Member)
	return both, err
}

func judgeMembership(group keyserver.ID, after keyserver.Principal, change membershipChange) (MembershipResult, error) {
	r := MembershipResult{Group: group, Member: after}
	is := slices.Contains(after.Groups, group)
	words := map[bool]string{true: "a member", false: "not a member"}
	if is != change.in {
		r.Detail = fmt.Sprintf("the key server accepted the change, but a fresh read shows that the principal is %s of the group", words[is])
		return r, fault.New(change.bad, "%s", r.Detail)
	}
	r.Done, r.Detail = true, fmt.Sprintf("a fresh read shows that the principal is %s of the group", words[is])
	return r, nil
}

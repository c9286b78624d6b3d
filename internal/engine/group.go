package engine

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// GroupMembers implements keyserver.Principals.
func (e *Engine) GroupMembers(ctx context.Context, by keyserver.Caller, f keyserver.GroupFilter) (members []keyserver.Principal, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListGroupMembers, Object: f.Group.Hex()}, func() error {
		g, err := e.Store.Principal(ctx, f.Group)
		if err := isGroup(g, f.Group, err); err != nil {
			return err
		}
		members, err = windowed(f.Limit, f.Offset, func(limit, offset int) ([]keyserver.Principal, error) {
			return e.Store.GroupMembers(ctx, f.Group, limit, offset)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return members, nil
}

// isGroup returns an error unless the principal was found and is a group.
func isGroup(p keyserver.Principal, id keyserver.ID, err error) error {
	if err == nil && p.Type != keyserver.GroupPrincipal {
		err = sqlstore.ErrNotFound
	}
	return gate.NotFound(err, fault.NotFound, "no group has the id %s", id)
}

// AddGroupMember implements keyserver.Principals.
func (e *Engine) AddGroupMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership) error {
	return e.changeMember(ctx, by, m, func(tx *sqlstore.Tx, p keyserver.Principal) error {
		switch {
		case slices.Contains(p.Groups, m.Group):
			return nil
		case p.Type == keyserver.GroupPrincipal:
			return fault.New(fault.InvalidArgument, "a group cannot be a member of a group; name a principal of another type").Audited(fault.ReasonInvalidArgument)
		case len(p.Groups) >= keyserver.MaxGroups:
			return fault.New(fault.InvalidArgument, "principal %q is in %d groups, the limit; remove it from one first", p.Name, len(p.Groups)).
				Audited(fault.ReasonInvalidArgument)
		}
		if err := e.checkKeyEscalation(ctx, tx, by, m.Group); err != nil {
			return err
		}
		return e.withEscalationCheck(ctx, tx, by, m.Member, func() error { return tx.AddGroupMember(ctx, m.Group, m.Member) })
	})
}

// RemoveGroupMember implements keyserver.Principals.
func (e *Engine) RemoveGroupMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership) error {
	return e.changeMember(ctx, by, m, func(tx *sqlstore.Tx, p keyserver.Principal) error {
		if !slices.Contains(p.Groups, m.Group) {
			return fault.New(fault.NotFound, "principal %q is not a member of the group", p.Name).Audited(fault.ReasonObjectNotFound)
		}
		return e.withDutyHolderCheck(ctx, tx, func() error { return tx.RemoveGroupMember(ctx, m.Group, m.Member) })
	})
}

// changeMember runs a change of a membership within a transaction, with the group and the member that the transaction
// reads. Like every update, it does not change system-defined principals.
func (e *Engine) changeMember(ctx context.Context, by keyserver.Caller, m keyserver.Membership,
	change func(*sqlstore.Tx, keyserver.Principal) error,
) error {
	r := gate.Request{By: by, Op: keyserver.OpChangeGroupMembers, Object: m.Member.Hex() + " in " + m.Group.Hex()}
	return e.Write(ctx, r, func(tx *sqlstore.Tx) error {
		g, err := tx.Principal(ctx, m.Group)
		if err := isGroup(g, m.Group, err); err != nil {
			return err
		}
		p, err := tx.Principal(ctx, m.Member)
		if err != nil {
			return gate.NotFound(err, fault.NotFound, "no principal has the id %s", m.Member)
		}
		if p.Flags.SystemDefined() {
			return nil
		}
		return change(tx, p)
	})
}

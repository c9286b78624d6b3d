package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// ACLTemplates implements keyserver.ACLTemplates.
func (e *Engine) ACLTemplates(ctx context.Context, by keyserver.Caller, q keyserver.ACLTemplateQuery) (list []keyserver.ACLTemplate, err error) {
	var who access.Subject
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListACLTemplates}, func() error {
		if list, err = e.Store.ACLTemplates(ctx, q); err != nil {
			return err
		}
		return e.markWritable(ctx, who, list)
	}, captureSubject(&who))
	return list, err
}

// markWritable sets Writable on each template that the subject may change.
func (e *Engine) markWritable(ctx context.Context, who access.Subject, list []keyserver.ACLTemplate) error {
	for _, p := range append([]keyserver.PrincipalRef{who.Principal}, who.Groups...) {
		memberships, err := e.Store.ACLTemplateMemberships(ctx, p)
		if err != nil {
			return err
		}
		for i := range list {
			if m, is := memberships[list[i].ID]; is && m.Writes(e.Clock()) {
				list[i].Writable = true
			}
		}
	}
	return nil
}

// ACLTemplate implements keyserver.ACLTemplates.
func (e *Engine) ACLTemplate(ctx context.Context, by keyserver.Caller, id keyserver.ID) (t keyserver.ACLTemplate, err error) {
	var who access.Subject
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadACLTemplateMembers, Object: id.Hex()}, func() error {
		if t, err = e.Store.ACLTemplate(ctx, id); err != nil {
			return noTemplate(err, id)
		}
		t.Writable = e.mayWrite(who, t)
		return nil
	}, captureSubject(&who))
	return t, err
}

// CreateACLTemplate implements keyserver.ACLTemplates.
func (e *Engine) CreateACLTemplate(ctx context.Context, by keyserver.Caller, name string) (keyserver.ID, error) {
	id, err := values.NewID(e.Random)
	if err != nil {
		return keyserver.ID{}, err
	}
	first := keyserver.TemplateMember{Principal: by.Principal, Rights: keyserver.Owner.Widen(), MaxUsage: keyserver.NoUsageLimit}
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpCreateACLTemplate, Object: id.Hex()}, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			n, err := tx.ACLTemplateCount(ctx)
			if err != nil {
				return err
			}
			if n >= keyserver.MaxACLTemplates {
				return full("ACL templates", keyserver.MaxACLTemplates)
			}
			return takenName(tx.InsertACLTemplate(ctx, keyserver.ACLTemplate{ID: id, Name: name, Members: []keyserver.TemplateMember{first}}))
		})
	})
	if err != nil {
		return keyserver.ID{}, err
	}
	return id, nil
}

// RenameACLTemplate implements keyserver.ACLTemplates.
func (e *Engine) RenameACLTemplate(ctx context.Context, by keyserver.Caller, change keyserver.ACLTemplateChange) error {
	return e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpUpdateACLTemplate, Object: change.ID.Hex()}, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return takenName(noTemplate(tx.RenameACLTemplate(ctx, change), change.ID))
		})
	}, e.writesTemplate(change.ID))
}

// DeleteACLTemplate implements keyserver.ACLTemplates. It checks the caller's role, but not its rights on the template.
// Otherwise a template could never be deleted after all of its members were deleted.
func (e *Engine) DeleteACLTemplate(ctx context.Context, by keyserver.Caller, id keyserver.ID) error {
	return e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpDeleteACLTemplate, Object: id.Hex()}, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			n, err := tx.ACLTemplateUses(ctx, id)
			if err != nil {
				return err
			}
			if n > 0 {
				return fault.New(fault.InUse, "%d templated directories use the ACL template; delete them first", n).Audited(fault.ReasonInUse)
			}
			return noTemplate(tx.DeleteACLTemplate(ctx, id), id)
		})
	})
}

// PutACLTemplateMember implements keyserver.ACLTemplates.
func (e *Engine) PutACLTemplateMember(ctx context.Context, by keyserver.Caller, m keyserver.TemplateMembership) error {
	m.Member.Rights = m.Member.Rights.Widen()
	return e.changeMembers(ctx, by, m.Template, m.Member.Principal, func(tx *sqlstore.Tx, t keyserver.ACLTemplate) error {
		if err := e.PrincipalExists(ctx, tx, m.Member.Principal); err != nil {
			return err
		}
		members := t.With(m.Member)
		if len(members) > keyserver.MaxTemplateMembers {
			return full("members of an ACL template", keyserver.MaxTemplateMembers)
		}
		if !keyserver.KeepsWriter(members) {
			return lastWriter()
		}
		return tx.PutACLTemplateMember(ctx, m)
	})
}

// RemoveACLTemplateMember implements keyserver.ACLTemplates.
func (e *Engine) RemoveACLTemplateMember(ctx context.Context, by keyserver.Caller, m keyserver.TemplateMemberRef) error {
	return e.changeMembers(ctx, by, m.Template, m.Principal, func(tx *sqlstore.Tx, t keyserver.ACLTemplate) error {
		if !keyserver.KeepsWriter(t.Without(m.Principal)) {
			return lastWriter()
		}
		return gate.NotFound(tx.DeleteACLTemplateMember(ctx, m), fault.NotFound, "principal %s is not a member of the ACL template", m.Principal)
	})
}

// changeMembers runs a change of a template's members within a transaction. The change gets the members that the
// transaction reads. Otherwise two concurrent changes could each remove one of the last two members with WRITE.
func (e *Engine) changeMembers(ctx context.Context, by keyserver.Caller, id keyserver.ID, target keyserver.PrincipalRef,
	change func(*sqlstore.Tx, keyserver.ACLTemplate) error,
) error {
	r := gate.Request{By: by, Op: keyserver.OpChangeACLTemplateMembers, Object: id.Hex() + " for " + target.String()}
	return e.Perform(ctx, r, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			t, err := tx.ACLTemplate(ctx, id)
			if err != nil {
				return noTemplate(err, id)
			}
			return change(tx, t)
		})
	}, e.writesTemplate(id))
}

// writesTemplate returns a check that the caller is a member of the template with WRITE.
func (e *Engine) writesTemplate(id keyserver.ID) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		t, err := e.Store.ACLTemplate(ctx, id)
		if err != nil {
			return noTemplate(err, id)
		}
		if !e.mayWrite(who, t) {
			return fault.New(fault.NotWritable, "only a member that holds WRITE may change the ACL template; ask one of them").Audited(fault.ReasonACLDenied)
		}
		return nil
	}
}

func (e *Engine) mayWrite(who access.Subject, t keyserver.ACLTemplate) bool {
	now := e.Clock()
	for _, m := range t.Members {
		if who.Is(m.Principal) && m.Writes(now) {
			return true
		}
	}
	return false
}

// captureSubject returns a check that always passes. It stores the subject of the request in into, for use in the
// effect.
func captureSubject(into *access.Subject) gate.Check {
	return func(_ context.Context, who access.Subject) error {
		*into = who
		return nil
	}
}

func noTemplate(err error, id keyserver.ID) error {
	return gate.NotFound(err, fault.NotFound, "no ACL template has the id %s", id)
}

func lastWriter() error {
	return fault.New(fault.LastWriter, "the ACL template would have no member that has WRITE without an endTime; give another member WRITE without an endTime first").
		Audited(fault.ReasonInvalidArgument)
}

// full returns the error for a list that has reached its limit.
func full(what string, limit int) error {
	return fault.New(fault.InvalidArgument, "limit reached: at most %d %s; remove one first", limit, what).Audited(fault.ReasonInvalidArgument)
}

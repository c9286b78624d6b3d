package verified

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// ACLTemplateResult is the result of creating or renaming a template.
type ACLTemplateResult struct {
	ID        keyserver.ID
	Requested string
	Saved     bool
	Missing   bool                   // no template has that id after the write
	Template  *keyserver.ACLTemplate // as read back
	Detail    string
}

// ACLTemplateGone is the result of deleting a template.
type ACLTemplateGone struct {
	ID       keyserver.ID
	Gone     bool
	Template keyserver.ACLTemplate // before the deletion
	Detail   string
}

// TemplateMemberResult is the result of setting or removing a template member.
type TemplateMemberResult struct {
	ID        keyserver.ID
	Principal keyserver.PrincipalRef
	Requested *keyserver.Rights // nil for the removal of a member
	Done      bool              // the re-read shows the requested change
	Missing   bool              // after the write, the template does not have the requested member
	Member    *keyserver.TemplateMember
	Template  keyserver.ACLTemplate // as read back, with its members
	Detail    string
}

// ACLTemplates lists the templates.
func (s *Service) ACLTemplates(ctx context.Context, by keyserver.Caller, q keyserver.ACLTemplateQuery) ([]keyserver.ACLTemplate, error) {
	return s.ks.ACLTemplates(ctx, by, q)
}

// aclTemplates returns all templates. Changes of templates are checked and verified with them.
func (s *Service) aclTemplates(ctx context.Context, by keyserver.Caller) ([]keyserver.ACLTemplate, error) {
	return s.ks.ACLTemplates(ctx, by, keyserver.ACLTemplateQuery{})
}

// ACLTemplate reads a template with its members.
func (s *Service) ACLTemplate(ctx context.Context, by keyserver.Caller, id keyserver.ID) (keyserver.ACLTemplate, error) {
	if err := requireID("id", id); err != nil {
		return keyserver.ACLTemplate{}, err
	}
	return s.ks.ACLTemplate(ctx, by, id)
}

// CreateACLTemplate creates a template. It verifies the name. It also verifies that the creator is a member with WRITE,
// because only such a member can change the template.
func (s *Service) CreateACLTemplate(ctx context.Context, by keyserver.Caller, name string) (ACLTemplateResult, error) {
	name, err := cleanName("name", name)
	if err != nil {
		return ACLTemplateResult{}, err
	}
	var id keyserver.ID
	return verifiedWrite[[]keyserver.ACLTemplate, ACLTemplateResult]{
		read: func(ctx context.Context) ([]keyserver.ACLTemplate, error) { return s.aclTemplates(ctx, by) },
		refuse: func(before []keyserver.ACLTemplate) error {
			return refuseTakenTemplateName(before, keyserver.ID{}, name)
		},
		write: func(ctx context.Context, _ []keyserver.ACLTemplate) (err error) {
			id, err = s.ks.CreateACLTemplate(ctx, by, name)
			return err
		},
		verdict: func(_, after []keyserver.ACLTemplate) (ACLTemplateResult, error) {
			r, err := judgeTemplate(id, name, after)
			if err == nil && !r.Template.Writable {
				r.Saved, r.Detail = false, "the ACL template was created, but its creator is not a member with WRITE"
				return r, fault.New(fault.NotSaved, "%s", r.Detail)
			}
			return r, err
		},
	}.do(ctx)
}

// RenameACLTemplate changes the name of a template. The caller must be a member with
// WRITE.
func (s *Service) RenameACLTemplate(ctx context.Context, by keyserver.Caller, change keyserver.ACLTemplateChange) (ACLTemplateResult, error) {
	var err error
	if change.Name, err = cleanName("name", change.Name); err != nil {
		return ACLTemplateResult{}, err
	}
	return verifiedWrite[[]keyserver.ACLTemplate, ACLTemplateResult]{
		read: func(ctx context.Context) ([]keyserver.ACLTemplate, error) { return s.aclTemplates(ctx, by) },
		refuse: func(before []keyserver.ACLTemplate) error {
			t, ok := findTemplate(before, change.ID)
			if !ok {
				return noTemplate(change.ID)
			}
			if err := refuseUnwritableTemplate(t); err != nil {
				return err
			}
			return refuseTakenTemplateName(before, change.ID, change.Name)
		},
		write: func(ctx context.Context, _ []keyserver.ACLTemplate) error {
			return s.ks.RenameACLTemplate(ctx, by, change)
		},
		verdict: func(_, after []keyserver.ACLTemplate) (ACLTemplateResult, error) {
			return judgeTemplate(change.ID, change.Name, after)
		},
	}.do(ctx)
}

// DeleteACLTemplate deletes a template and verifies that it is gone.
func (s *Service) DeleteACLTemplate(ctx context.Context, by keyserver.Caller, id keyserver.ID) (ACLTemplateGone, error) {
	return verifiedWrite[[]keyserver.ACLTemplate, ACLTemplateGone]{
		read: func(ctx context.Context) ([]keyserver.ACLTemplate, error) { return s.aclTemplates(ctx, by) },
		refuse: func(before []keyserver.ACLTemplate) error {
			if _, ok := findTemplate(before, id); !ok {
				return noTemplate(id)
			}
			return nil
		},
		write: func(ctx context.Context, _ []keyserver.ACLTemplate) error { return s.ks.DeleteACLTemplate(ctx, by, id) },
		verdict: func(before, after []keyserver.ACLTemplate) (ACLTemplateGone, error) {
			t, _ := findTemplate(before, id)
			r := ACLTemplateGone{ID: id, Template: t}
			if _, still := findTemplate(after, id); still {
				r.Detail = "the key server accepted the removal, but a fresh read still shows the ACL template"
				return r, fault.New(fault.NotRemoved, "%s", r.Detail)
			}
			r.Gone = true
			r.Detail = fmt.Sprintf("a fresh read no longer shows the ACL template %q; existing keys keep the entries that they got from it", t.Name)
			return r, nil
		},
	}.do(ctx)
}

// PutTemplateMember makes a principal a member of a template with exactly the given limits and (widened) rights. The
// principal may already be a member.
func (s *Service) PutTemplateMember(ctx context.Context, by keyserver.Caller, m keyserver.TemplateMembership) (TemplateMemberResult, error) {
	if err := refuseMember(m.Member); err != nil {
		return TemplateMemberResult{}, err
	}
	return s.changeMembers(ctx, by, m.Template, memberChange{
		principal: m.Member.Principal,
		members:   func(before keyserver.ACLTemplate) []keyserver.TemplateMember { return before.With(m.Member) },
		write:     func(ctx context.Context) error { return s.ks.PutACLTemplateMember(ctx, by, m) },
		judge: func(after keyserver.ACLTemplate) (TemplateMemberResult, error) {
			return judgeMember(m.Template, m.Member, after)
		},
	})
}

// RemoveTemplateMember removes a member and verifies that it is gone.
func (s *Service) RemoveTemplateMember(ctx context.Context, by keyserver.Caller, m keyserver.TemplateMemberRef) (TemplateMemberResult, error) {
	if err := requireID("principalId", m.Principal.ID); err != nil {
		return TemplateMemberResult{}, err
	}
	return s.changeMembers(ctx, by, m.Template, memberChange{
		principal: m.Principal, leaves: true,
		members: func(before keyserver.ACLTemplate) []keyserver.TemplateMember { return before.Without(m.Principal) },
		write:   func(ctx context.Context) error { return s.ks.RemoveACLTemplateMember(ctx, by, m) },
		judge: func(after keyserver.ACLTemplate) (TemplateMemberResult, error) {
			return judgeLeaver(m.Template, m.Principal, after)
		},
	})
}

// memberChange describes one of the two changes of members: set or remove.
type memberChange struct {
	principal keyserver.PrincipalRef
	leaves    bool // the principal must be a member before the write
	// members returns the members after the change, for the check before the write.
	members func(before keyserver.ACLTemplate) []keyserver.TemplateMember
	write   func(ctx context.Context) error
	judge   func(after keyserver.ACLTemplate) (TemplateMemberResult, error)
}

func (s *Service) changeMembers(ctx context.Context, by keyserver.Caller, id keyserver.ID, c memberChange) (TemplateMemberResult, error) {
	return verifiedWrite[keyserver.ACLTemplate, TemplateMemberResult]{
		read: func(ctx context.Context) (keyserver.ACLTemplate, error) { return s.ACLTemplate(ctx, by, id) },
		refuse: func(before keyserver.ACLTemplate) error {
			if err := refuseUnwritableTemplate(before); err != nil {
				return err
			}
			if _, ok := before.Member(c.principal); c.leaves && !ok {
				return fault.New(fault.NotFound, "principal %s is not a member of the ACL template; list the members with GET /api/acl-templates/%s/members", c.principal, id)
			}
			if !keyserver.KeepsWriter(c.members(before)) {
				return fault.New(fault.LastWriter, "the ACL template would have no member that has WRITE without an endTime; give another member WRITE without an endTime first")
			}
			return nil
		},
		write:   func(ctx context.Context, _ keyserver.ACLTemplate) error { return c.write(ctx) },
		verdict: func(_, after keyserver.ACLTemplate) (TemplateMemberResult, error) { return c.judge(after) },
	}.do(ctx)
}

func judgeTemplate(id keyserver.ID, name string, after []keyserver.ACLTemplate) (ACLTemplateResult, error) {
	r := ACLTemplateResult{ID: id, Requested: name}
	t, ok := findTemplate(after, id)
	switch {
	case !ok:
		r.Missing = true
		r.Detail = "the key server accepted the change, but a fresh read does not show the ACL template"
	case t.Name != name:
		r.Template, r.Detail = &t, fmt.Sprintf("the key server accepted the change, but a fresh read shows the name %q", t.Name)
	default:
		r.Template, r.Saved, r.Detail = &t, true, "a fresh read shows the requested name"
		return r, nil
	}
	return r, fault.New(fault.NotSaved, "%s", r.Detail)
}

// judgeMember returns the verdict on a new or changed member. The key server widens rights, so the member may have more
// rights than requested, but only those that widening adds.
func judgeMember(id keyserver.ID, m keyserver.TemplateMember, after keyserver.ACLTemplate) (TemplateMemberResult, error) {
	r := TemplateMemberResult{ID: id, Principal: m.Principal, Requested: &m.Rights, Template: after}
	held, ok := after.Member(m.Principal)
	if !ok {
		r.Missing, r.Detail = true, "the key server accepted the member, but a fresh read does not show it"
		return r, fault.New(fault.NotSaved, "%s", r.Detail)
	}
	r.Member = &held
	switch {
	case !held.Rights.Has(m.Rights):
		r.Detail = fmt.Sprintf("a fresh read shows the rights %v, not all of the requested %v", held.Rights.Names(), m.Rights.Names())
	case !m.Rights.Widen().Has(held.Rights):
		r.Detail = fmt.Sprintf("a fresh read shows the rights %v, more than the requested %v imply", held.Rights.Names(), m.Rights.Names())
	case held.MaxUsage != m.MaxUsage || held.Start != m.Start || held.End != m.End:
		r.Detail = "a fresh read shows the requested rights, but another maxUsage, startTime or endTime"
	default:
		r.Done, r.Detail = true, fmt.Sprintf("a fresh read shows the member with the rights %v; new keys get an entry with them", held.Rights.Names())
		return r, nil
	}
	return r, fault.New(fault.NotSaved, "%s", r.Detail)
}

func judgeLeaver(id keyserver.ID, p keyserver.PrincipalRef, after keyserver.ACLTemplate) (TemplateMemberResult, error) {
	r := TemplateMemberResult{ID: id, Principal: p, Template: after}
	if held, still := after.Member(p); still {
		r.Member, r.Detail = &held, "the key server accepted the removal, but a fresh read still shows the member"
		return r, fault.New(fault.NotRemoved, "%s", r.Detail)
	}
	r.Done, r.Detail = true, "a fresh read no longer shows the member; existing keys keep its entry"
	return r, nil
}

func refuseMember(m keyserver.TemplateMember) error {
	if err := requireID("principalId", m.Principal.ID); err != nil {
		return err
	}
	if m.Rights == 0 {
		return fault.New(fault.BadRequest, "rights: must name at least one right; to remove all rights, remove the member")
	}
	return refuseEntryTerms(m.Rights, m.MaxUsage, m.Start, m.End)
}

func refuseUnwritableTemplate(t keyserver.ACLTemplate) error {
	if !t.Writable {
		return fault.New(fault.NotWritable, "only a member that holds WRITE may change ACL template %q; ask one of them", t.Name)
	}
	return nil
}

func refuseTakenTemplateName(templates []keyserver.ACLTemplate, self keyserver.ID, name string) error {
	for _, t := range templates {
		if t.Name == name && t.ID != self {
			return fault.New(fault.AlreadyExists, "name: ACL template %[2]s already has the name %[1]q; choose another", name, t.ID)
		}
	}
	return nil
}

func noTemplate(id keyserver.ID) error {
	return fault.New(fault.NotFound, "no ACL template has the id %s; list them with GET /api/acl-templates", id)
}

func findTemplate(templates []keyserver.ACLTemplate, id keyserver.ID) (keyserver.ACLTemplate, bool) {
	for _, t := range templates {
		if t.ID == id {
			return t, true
		}
	}
	return keyserver.ACLTemplate{}, false
}

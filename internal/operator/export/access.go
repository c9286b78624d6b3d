package export

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

func init() { collectors["Role"] = collector{(*exporter).roles, "role"} }

func (e *exporter) roles(ctx context.Context) ([]candidate, error) {
	catalogue, err := e.Admin.ListOperations(ctx)
	if err != nil {
		return nil, err
	}
	names := map[schema.HexID]string{}
	for _, op := range catalogue.Operations {
		names[op.ID] = op.Name
	}
	list, err := e.Admin.ListRoles(ctx)
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, r := range list.Roles {
		if r.BuiltIn == nil || !*r.BuiltIn {
			found = append(found, candidateRole(r, names))
		}
	}
	return found, nil
}

// candidateRole declares a role by its name. If the schema rejects the name, it declares the role by its id. The
// manager then leaves the name unchanged.
func candidateRole(r schema.Role, names map[schema.HexID]string) candidate {
	operations := make([]string, len(r.Operations))
	for i, id := range r.Operations {
		if operations[i] = names[id]; operations[i] == "" {
			operations[i] = id.String()
		}
	}
	slices.Sort(operations)
	id := r.ID.String()
	obj := &v1beta1.Role{Spec: v1beta1.RoleSpec{RoleName: &r.Name, Operations: operations}}
	return candidate{
		what: fmt.Sprintf("role %q (id %s)", r.Name, id), title: r.Name, id: id, marked: r.ID, object: obj,
		spares: []optionalPart{once("spec.roleName", "its name", func() { obj.Spec.RoleName, obj.Spec.RoleID = nil, &id })},
	}
}

func init() { collectors["ACLTemplate"] = collector{(*exporter).aclTemplates, "aclTemplate"} }

func (e *exporter) aclTemplates(ctx context.Context) ([]candidate, error) {
	list, err := e.Officer.ListACLTemplates(ctx, schema.ACLTemplateQuery{})
	if err != nil {
		return nil, err
	}
	directories, err := e.Officer.ListTemplatedDirectories(ctx, schema.TemplatedDirectoryQuery{})
	if err != nil {
		return nil, err
	}
	session, err := e.Officer.GetCurrentSession(ctx)
	if err != nil {
		return nil, err
	}
	paths := map[schema.HexID][]string{}
	for _, d := range directories.Directories {
		paths[d.ACLTemplateID] = append(paths[d.ACLTemplateID], d.Path)
	}
	var found []candidate
	for _, t := range list.Templates {
		c, err := e.candidateTemplate(ctx, t, session.Principal)
		if err != nil {
			return nil, err
		}
		if obj, is := c.object.(*v1beta1.ACLTemplate); is {
			slices.Sort(paths[t.ID])
			obj.Spec.Directories = paths[t.ID]
			// If spec.directories is missing, the manager leaves the directories unchanged.
			c.spares = append(c.spares, once("spec.directories", "its directories", func() { obj.Spec.Directories = nil }))
		}
		found = append(found, c)
	}
	return found, nil
}

func (e *exporter) candidateTemplate(ctx context.Context, t schema.ACLTemplate, own schema.SessionPrincipal) (candidate, error) {
	c := candidate{what: fmt.Sprintf("ACL template %q (id %s)", t.Name, t.ID), title: t.Name, id: t.ID.String(), marked: t.ID}
	held, err := e.Officer.ListACLTemplateMembers(ctx, schema.ByID{ID: t.ID})
	if err != nil {
		return c, err
	}
	var ids []schema.HexID
	for _, m := range held.Members {
		ids = append(ids, schema.HexID(m.PrincipalID))
	}
	if err := e.people.lookUp(ctx, ids); err != nil {
		return c, err
	}
	obj := &v1beta1.ACLTemplate{Spec: v1beta1.ACLTemplateSpec{TemplateName: t.Name, Members: []v1beta1.ACLTemplateMember{}}}
	byID := map[string]string{}
	for _, m := range held.Members {
		self := m.SystemID == own.SystemID && m.PrincipalID == own.PrincipalID
		if self && (locksOut(m) || len(held.Members) > maxMembers) {
			continue // the manager rejects or does not need its own entry, and leaves the entry unchanged
		}
		member, cannot := e.member(m)
		if cannot != "" {
			c.cannot = cannot
			return c, nil
		}
		obj.Spec.Members = append(obj.Spec.Members, member)
		byID[member.Principal] = formatID(m.SystemID, schema.HexID(m.PrincipalID))
	}
	slices.SortFunc(obj.Spec.Members, func(a, b v1beta1.ACLTemplateMember) int { return strings.Compare(a.Principal, b.Principal) })
	c.object = obj
	c.spares = []optionalPart{{field: "spec.members", without: func(refusal string) bool { return renamed(obj.Spec.Members, byID, refusal) }}}
	return c, nil
}

// maxMembers is the maximum number of members in a manifest. On the key server, a template can also have the manager's
// own entry.
const maxMembers = 255

// renamed replaces the names of members by ids if the error refers to these members. It reports whether it replaced a
// name.
func renamed(members []v1beta1.ACLTemplateMember, byID map[string]string, refusal string) (any bool) {
	for i := range members {
		id, named := byID[members[i].Principal]
		if named && id != members[i].Principal && strings.Contains(refusal, fmt.Sprintf("spec.members[%d].principal", i)) {
			members[i].Principal, any = id, true
		}
	}
	return any
}

func locksOut(m schema.TemplateMember) bool {
	return !m.Rights.Has(schema.RightNamed("WRITE")) || !m.StartTime.IsUnset() || !m.EndTime.IsUnset()
}

// member declares one member. The declared rights include the implied rights.
func (e *exporter) member(m schema.TemplateMember) (out v1beta1.ACLTemplateMember, cannot string) {
	out.Principal = e.people.member(m.SystemID, schema.HexID(m.PrincipalID))
	for _, name := range m.Rights.Names() {
		out.Rights = append(out.Rights, v1beta1.Right(name))
	}
	slices.Sort(out.Rights)
	if m.MaxUsage >= 0 {
		out.MaxUsage = &m.MaxUsage
	}
	var exact [2]bool
	out.StartTime, exact[0] = timeOf(m.StartTime)
	out.EndTime, exact[1] = timeOf(m.EndTime)
	if !exact[0] || !exact[1] {
		return out, fmt.Sprintf("startTime or endTime of its member %q is not a whole second up to the year 9999", out.Principal)
	}
	return out, ""
}

// timeOf converts a time stamp. exact is false if a manifest cannot declare exactly this time.
func timeOf(s schema.Stamp) (t *metav1.Time, exact bool) {
	if s.IsUnset() {
		return nil, true
	}
	const second, year9999 = 1000, 253402300799999
	ms := binary.BigEndian.Uint64(s[:])
	if ms%second != 0 || ms > year9999 {
		return nil, false
	}
	at := metav1.NewTime(time.UnixMilli(int64(ms)).UTC())
	return &at, true
}

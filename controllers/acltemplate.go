package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// aclTemplates is the list of ACL templates, found by id and by name.
var aclTemplates = connection.List[schema.ACLTemplate]{
	Name: "aclTemplate",
	Read: func(ctx context.Context, c *connection.Connection) ([]schema.ACLTemplate, error) {
		l, err := c.Officer.ListACLTemplates(ctx, schema.ACLTemplateQuery{IncludeDigests: true})
		return l.Templates, err
	},
	Keys: func(t schema.ACLTemplate) []string { return []string{t.ID.String(), byName(t.Name)} },
}

// identity caches the principal with which the manager changes templates.
var identity = connection.Lookup[schema.SessionPrincipal]{
	Name: "own identity", // valid as long as the connection
	Read: func(ctx context.Context, c *connection.Connection, _ string) (schema.SessionPrincipal, error) {
		s, err := c.Officer.GetCurrentSession(ctx)
		return s.Principal, err
	},
	ID: func(schema.SessionPrincipal) string { return "" },
}

// declaredTemplate is the declaration of an ACLTemplate with its references resolved.
type declaredTemplate struct {
	membership
	name string
	// paths are the directories that use the template, each with a trailing slash. nil leaves the directories unchanged.
	paths map[string]bool
}

type aclTemplateAdapter struct{}

func init() { adapted(aclTemplateAdapter{}) }

// Kind implements reconcile.Adapter.
func (aclTemplateAdapter) Kind() reconcile.Kind {
	return reconcile.Kind{
		Name: "ACLTemplate", Feed: aclTemplates.Name,
		FormatID: schema.HexID.String,
		ParseID:  schema.ParseHexID,
		Awaits:   []string{principals.Feed, trustedServers.Name},
		Uses:     []string{directories.Name},
	}
}

// Sources implements reconcile.Adapter.
func (aclTemplateAdapter) Sources(*v1beta1.ACLTemplate) []sources.Ref { return nil }

// Owned implements reconcile.Adapter.
func (aclTemplateAdapter) Owned(obj *v1beta1.ACLTemplate) string { return obj.Status.TemplateID }

// Claims implements reconcile.Adapter: an ACLTemplate claims a name, and the id of the template that it owns.
func (aclTemplateAdapter) Claims(obj *v1beta1.ACLTemplate, _ *declaredTemplate) []string {
	claims := []string{byName(obj.Spec.TemplateName)}
	if obj.Status.TemplateID != "" && obj.Status.Provenance != "" {
		claims = append(claims, obj.Status.TemplateID)
	}
	return claims
}

// Scope implements reconcile.Adapter: a template affects the keys below its directories. Observe adds the present name
// of the template.
func (aclTemplateAdapter) Scope(_ context.Context, _ reconcile.Input, obj *v1beta1.ACLTemplate, _ *declaredTemplate) (grants.Scope, error) {
	reach := grants.Scope{Names: []grants.Name{{obj.Spec.TemplateName}}}
	for _, p := range obj.Spec.Directories {
		reach.Names = append(reach.Names, grants.Name{directoryPath(p)})
	}
	return reach, nil
}

// Provides implements reconcile.Provider.
func (aclTemplateAdapter) Provides(obj *v1beta1.ACLTemplate) []string {
	var keys []string
	for _, p := range obj.Spec.Directories {
		keys = append(keys, reconcile.IndexKey(obj.Spec.KeyServerRef.Name, directoryKey(directoryPath(p))))
	}
	return keys
}

// Needs implements reconcile.Consumer. The principals of the members must not be deleted.
func (aclTemplateAdapter) Needs(obj *v1beta1.ACLTemplate) []reconcile.Need {
	needs := make([]reconcile.Need, len(obj.Spec.Members))
	for i, m := range obj.Spec.Members {
		needs[i] = reconcile.Need{Key: reconcile.IndexKey(obj.Spec.KeyServerRef.Name, principalKey(m.Principal)), Holds: true}
	}
	return needs
}

// Declared implements reconcile.Adapter.
func (a aclTemplateAdapter) Declared(ctx context.Context, in reconcile.Input, obj *v1beta1.ACLTemplate) (declaredTemplate, error) {
	want := declaredTemplate{name: obj.Spec.TemplateName}
	own, err := identity.Of(in.Conn).Get(ctx, time.Time{}, "")
	if err != nil {
		return want, err
	}
	want.membership, err = declareMembers(ctx, in, obj.Spec.Members, memberKey{own.SystemID, own.PrincipalID})
	if err != nil {
		return want, err
	}
	if self, is := want.members[want.own]; is && locksOut(self.TemplateMemberRequest) {
		return want, connection.NewProblem(v1beta1.ReasonInvalidSpec,
			"spec.members: the manager logs in as %q, which needs WRITE without startTime and endTime to change the template; "+
				"declare that, or omit the member: it then keeps its present rights", self.spelled)
	}
	if obj.Spec.Directories != nil {
		want.paths = map[string]bool{}
		for _, p := range obj.Spec.Directories {
			want.paths[directoryPath(p)] = true
		}
	}
	return want, nil
}

// Observe implements reconcile.Adapter. It finds the template by the id in the status, and otherwise by name.
func (a aclTemplateAdapter) Observe(ctx context.Context, in reconcile.Input, obj *v1beta1.ACLTemplate, want *declaredTemplate) (reconcile.External, error) {
	seen := reconcile.External{What: fmt.Sprintf("ACL template %q", obj.Spec.TemplateName)}
	keys := []string{obj.Status.TemplateID}
	if want != nil && (!in.Deleting || obj.Status.TemplateID == "") {
		keys = append(keys, byName(want.name))
	}
	template, ok, err := aclTemplates.Of(in.Conn).Find(ctx, in.NotBefore, keys...)
	if err != nil {
		return seen, err
	}
	if !ok {
		if want != nil && !in.Deleting {
			var taken string
			_, _, taken, err = compareDirectories(ctx, in, "", want.paths)
			seen.Blockers = fixedBy(taken)
		}
		return seen, err
	}
	seen.Exists, seen.ID, seen.Names = true, template.ID.String(), []grants.Name{{template.Name}}
	seen.What = fmt.Sprintf("ACL template %q (id %s)", template.Name, seen.ID)
	if want == nil {
		return seen, nil
	}
	held, err := readMembers(ctx, in, template)
	if err != nil {
		return seen, err
	}
	drift, begun := compareMembers(want.membership, held.Members)
	var named string
	if template.Name != want.name {
		begun = false
		if named, err = heldName(ctx, in, want.name); err != nil {
			return seen, err
		}
		drift = append([]v1beta1.FieldDrift{{Field: "templateName", Declared: want.name, Observed: template.Name}}, drift...)
	}
	paths, added, taken, err := compareDirectories(ctx, in, seen.ID, want.paths)
	if err != nil {
		return seen, err
	}
	seen.Blockers, seen.AdapterData = fixedBy(named, taken), templateNotes{begun: begun && added}
	seen.Drift = slices.Concat(drift, paths)
	seen.Evidence = fmt.Sprintf("template %s has exactly the declared %s", seen.ID, plural(len(want.members), "member"))
	return seen, nil
}

// templateNotes is data of a template reading for later use.
type templateNotes struct {
	begun bool // the template only lacks members or directories
}

// NeedsOnlyAdditions implements reconcile.Stepwise: the first write creates the template, later writes add its members
// and directories.
func (aclTemplateAdapter) NeedsOnlyAdditions(seen reconcile.External) bool {
	noted, _ := seen.AdapterData.(templateNotes)
	return noted.begun
}

// fixedBy returns a blocker for the first nonempty reason, or nil.
func fixedBy(reasons ...string) []reconcile.Blocker {
	if why := cmp.Or(reasons...); why != "" {
		return []reconcile.Blocker{reconcile.Fixed(why)}
	}
	return nil
}

// heldName returns a message if a template already has the declared name, or "".
func heldName(ctx context.Context, in reconcile.Input, name string) (string, error) {
	holder, taken, err := aclTemplates.Of(in.Conn).Find(ctx, in.NotBefore, byName(name))
	if err != nil || !taken {
		return "", err
	}
	return fmt.Sprintf("spec.templateName: ACL template %q (id %s) already has this name; rename or delete that template, or declare another name", holder.Name, holder.ID), nil
}

// Create implements reconcile.Adapter. The first write creates the template with its name only. If a later write fails,
// the next pass continues.
func (a aclTemplateAdapter) Create(ctx context.Context, c *connection.Connection, want declaredTemplate) (reconcile.Outcome, error) {
	saved, err := c.Officer.CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: want.name})
	if err != nil {
		return reconcile.Outcome{}, err
	}
	aclTemplates.Of(c).Put(*saved.Template)
	out := reconcile.Outcome{ID: saved.Template.ID.String()}
	out.Evidence, out.Unfinished = a.fill(ctx, c, want, saved.Template.ID)
	return out, nil
}

// Update implements reconcile.Adapter.
func (a aclTemplateAdapter) Update(ctx context.Context, c *connection.Connection, want declaredTemplate, seen reconcile.External) (reconcile.Outcome, error) {
	id, err := parseID(schema.ParseHexID, seen.ID)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if slices.ContainsFunc(seen.Drift, func(d v1beta1.FieldDrift) bool { return d.Field == "templateName" }) {
		saved, err := c.Officer.RenameACLTemplate(ctx, schema.RenameACLTemplateRequest{ID: id, ACLTemplateRequest: schema.ACLTemplateRequest{Name: want.name}})
		if err != nil {
			return reconcile.Outcome{}, err
		}
		aclTemplates.Of(c).Put(*saved.Template)
	}
	evidence, err := a.fill(ctx, c, want, id)
	return reconcile.Outcome{ID: seen.ID, Evidence: evidence}, err
}

// fill makes the members and directories of the template equal to the declared ones.
func (a aclTemplateAdapter) fill(ctx context.Context, c *connection.Connection, want declaredTemplate, id schema.HexID) (string, error) {
	if err := setTemplateMembers(ctx, c, want, id); err != nil {
		return "", err
	}
	return fmt.Sprintf("the second read shows exactly the declared %s", plural(len(want.members), "member")), place(ctx, c, want.paths, id)
}

// Delete implements reconcile.Adapter. It deletes directories only if the object declares directories. Otherwise
// existing directories block the deletion.
func (aclTemplateAdapter) Delete(ctx context.Context, c *connection.Connection, obj *v1beta1.ACLTemplate, id string) (reconcile.Outcome, error) {
	template, err := parseID(schema.ParseHexID, id)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if obj.Spec.Directories != nil {
		if _, err := displace(ctx, c, template, func(string) bool { return false }); err != nil {
			return reconcile.Outcome{}, err
		}
	}
	gone, err := c.Officer.DeleteACLTemplate(ctx, schema.ByID{ID: template})
	if err != nil {
		return reconcile.Outcome{}, err
	}
	aclTemplates.Of(c).Drop(id)
	return reconcile.Outcome{ID: id, Evidence: gone.Detail}, nil
}

// Record implements reconcile.Adapter.
func (aclTemplateAdapter) Record(obj *v1beta1.ACLTemplate, want *declaredTemplate, seen reconcile.External, owner bool, _ time.Time) {
	if !owner {
		return
	}
	s := &obj.Status
	s.TemplateID = seen.ID
	if want == nil || len(seen.Drift) > 0 {
		return
	}
	members := int32(len(want.members)) //nolint:gosec // the schema limits it
	if _, declared := want.members[want.own]; !declared {
		members++
	}
	s.MemberCount, s.DirectoryCount = &members, nil
	if want.paths != nil {
		n := int32(len(want.paths)) //nolint:gosec // the schema limits it
		s.DirectoryCount = &n
	}
}

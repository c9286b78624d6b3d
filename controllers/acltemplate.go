package controllers

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/link"
	"github.com/keyserver-operator/keyserver-operator/internal/managed"
)

// +kubebuilder:rbac:groups=trust.keyserver.dev,resources=acltemplates,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=trust.keyserver.dev,resources=acltemplates/status,verbs=patch

// aclTemplates is the list of ACL templates, found by id and by name.
var aclTemplates = link.List[schema.ACLTemplate]{
	Name: "aclTemplate",
	Read: func(ctx context.Context, c *link.Connection) ([]schema.ACLTemplate, error) {
		l, err := c.Officer.ACLTemplates(ctx)
		return l.Templates, err
	},
	Keys: func(t schema.ACLTemplate) []string { return []string{t.ID.String(), byName(t.Name)} },
}

// templateMembers answers who the members of a template are.
var templateMembers = link.Answers[schema.TemplateMemberList]{
	Feed: aclTemplates.Name, Name: "members of a template",
	Read: func(ctx context.Context, c *link.Connection, key string) (schema.TemplateMemberList, error) {
		return c.Officer.TemplateMembers(ctx, key)
	},
	ID: func(l schema.TemplateMemberList) string { return l.ID.String() },
}

// directories is the list of templated directories, found by id and by path.
var directories = link.List[schema.TemplatedDirectory]{
	Name: "templatedDirectory",
	Read: func(ctx context.Context, c *link.Connection) ([]schema.TemplatedDirectory, error) {
		l, err := c.Officer.TemplatedDirectories(ctx, schema.TemplatedDirectoryQuery{})
		return l.Directories, err
	},
	Keys: func(d schema.TemplatedDirectory) []string { return []string{d.ID.String(), byPath(d.Path)} },
}

func byPath(path string) string { return "path:" + path }

// identity answers whom the manager changes templates as.
var identity = link.Answers[schema.SessionPrincipal]{
	Name: "own identity", // for as long as the connection is the same
	Read: func(ctx context.Context, c *link.Connection, _ string) (schema.SessionPrincipal, error) {
		s, err := c.Officer.CurrentSession(ctx)
		return s.Principal, err
	},
	ID: func(schema.SessionPrincipal) string { return "" },
}

// memberKey names a principal among the members of a template.
type memberKey struct {
	system    schema.SystemID
	principal schema.DecimalID
}

func (k memberKey) String() string { return fmt.Sprintf("id/%d/%s", k.system, k.principal) }

// declaredMember is one member, its principal resolved.
type declaredMember struct {
	schema.TemplateMemberRequest
	spelled string // as the spec names the principal
}

// declaredTemplate is what an ACLTemplate declares, its references resolved.
type declaredTemplate struct {
	name    string
	members map[memberKey]declaredMember
	own     memberKey
	// paths that use it, each with its trailing slash; nil where they are left
	// as they are.
	paths map[string]bool
}

type aclTemplateAdapter struct{}

// Kind implements adapter.
func (aclTemplateAdapter) Kind() managed.Kind[*v1alpha1.ACLTemplate] {
	return managed.Kind[*v1alpha1.ACLTemplate]{
		Name: "ACLTemplate", CRD: "acltemplates.trust.keyserver.dev", Feed: aclTemplates.Name,
		Spell:   schema.HexID.String,
		Awaits:  []string{principals.Feed, trustedServers.Name},
		Uses:    []string{directories.Name},
		New:     func() *v1alpha1.ACLTemplate { return &v1alpha1.ACLTemplate{} },
		NewList: func() client.ObjectList { return &v1alpha1.ACLTemplateList{} },
	}
}

// Sources implements adapter.
func (aclTemplateAdapter) Sources(*v1alpha1.ACLTemplate) []managed.SourceRef { return nil }

// Owned implements adapter.
func (aclTemplateAdapter) Owned(obj *v1alpha1.ACLTemplate) string { return obj.Status.TemplateID }

// Claims implements adapter: an ACLTemplate claims a name, and the id of the
// template that it has made or taken over.
func (aclTemplateAdapter) Claims(obj *v1alpha1.ACLTemplate, _ *declaredTemplate) []string {
	claims := []string{byName(obj.Spec.TemplateName)}
	if obj.Status.TemplateID != "" && obj.Status.Provenance != "" {
		claims = append(claims, obj.Status.TemplateID)
	}
	return claims
}

// Declared implements adapter.
func (a aclTemplateAdapter) Declared(ctx context.Context, in managed.Input, obj *v1alpha1.ACLTemplate) (declaredTemplate, error) {
	want := declaredTemplate{name: obj.Spec.TemplateName, members: map[memberKey]declaredMember{}}
	own, err := identity.Of(in.Conn).Get(ctx, time.Time{}, "")
	if err != nil {
		return want, err
	}
	want.own = memberKey{own.SystemID, own.PrincipalID}
	for _, m := range obj.Spec.Members {
		key, err := resolveMember(ctx, in, m.Principal)
		if err != nil {
			return want, err
		}
		if twin, twice := want.members[key]; twice {
			return want, link.NewProblem(v1alpha1.ReasonInvalidSpec, "spec.members names one principal as %q and as %q; keep one of them", twin.spelled, m.Principal)
		}
		member := memberOf(key, m)
		if key == want.own && locksOut(member) {
			return want, link.NewProblem(v1alpha1.ReasonInvalidSpec,
				"spec.members gives %q, as which the manager logs in, less than WRITE without a start and an end, so that it could no longer change the template; "+
					"raise that, or leave it out: it then keeps what it has", m.Principal)
		}
		want.members[key] = declaredMember{member, m.Principal}
	}
	if obj.Spec.Directories != nil {
		want.paths = map[string]bool{}
		for _, p := range obj.Spec.Directories {
			want.paths[directoryPath(p)] = true
		}
	}
	return want, nil
}

// directoryPath is a path as the key server stores it: with one trailing slash.
func directoryPath(path string) string { return strings.TrimRight(path, "/") + "/" }

// resolveMember finds the principal that "TYPE/NAME" or "id/SYSTEM/PRINCIPAL"
// names.
func resolveMember(ctx context.Context, in managed.Input, spelled string) (memberKey, error) {
	kind, rest, _ := strings.Cut(spelled, "/")
	if kind != "id" {
		p, err := resolvePrincipal(ctx, in, kind, rest)
		return memberKey{p.SystemID, p.PrincipalID}, err
	}
	system, principal, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(system, 10, 32)
	key := memberKey{system: schema.SystemID(n)}
	if err != nil || key.principal.UnmarshalText([]byte(principal)) != nil {
		return key, link.NewProblem(v1alpha1.ReasonInvalidSpec, "spec.members names %q, in which a number is larger than a system id or a principal id can be", spelled)
	}
	return key, nil
}

func memberOf(key memberKey, m v1alpha1.ACLTemplateMember) schema.TemplateMemberRequest {
	var rights schema.Rights
	for _, name := range m.Rights {
		rights |= schema.RightNamed(string(name))
	}
	return schema.TemplateMemberRequest{
		SystemID: key.system, PrincipalID: key.principal, Rights: rights, MaxUsage: m.MaxUsage,
		StartTime: stampOf(m.StartTime), EndTime: stampOf(m.EndTime),
	}
}

// stampOf spells a time as the key server does, nil for none.
func stampOf(t *metav1.Time) *schema.Stamp {
	if t == nil {
		return nil
	}
	var s schema.Stamp
	binary.BigEndian.PutUint64(s[:], uint64(t.UnixMilli()))
	return &s
}

// timeOf reads a stamp, for people.
func timeOf(s schema.Stamp) string {
	ms := binary.BigEndian.Uint64(s[:])
	const year9999 = 253402300799999
	if ms > year9999 {
		return "after 9999"
	}
	return time.UnixMilli(int64(ms)).UTC().Format(time.RFC3339)
}

func locksOut(m schema.TemplateMemberRequest) bool {
	return !m.Rights.Widen().Has(schema.RightNamed("WRITE")) || m.StartTime != nil || m.EndTime != nil
}

// Observe implements adapter. The template is found by the id that the object
// owns, and only then by name.
func (a aclTemplateAdapter) Observe(ctx context.Context, in managed.Input, obj *v1alpha1.ACLTemplate, want *declaredTemplate) (managed.External, error) {
	seen := managed.External{What: fmt.Sprintf("ACL template %q", obj.Spec.TemplateName)}
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
			seen.Hindrances = fixedBy(taken)
		}
		return seen, err
	}
	seen.Exists, seen.ID = true, template.ID.String()
	seen.What = fmt.Sprintf("ACL template %q (id %s)", template.Name, seen.ID)
	if want == nil {
		return seen, nil
	}
	held, err := templateMembers.Of(in.Conn).Get(ctx, in.NotBefore, seen.ID)
	if err != nil {
		return seen, err
	}
	drift, begun := compareMembers(want, held.Members)
	var named string
	if template.Name != want.name {
		begun = false
		if named, err = heldName(ctx, in, want.name); err != nil {
			return seen, err
		}
		drift = append([]v1alpha1.FieldDrift{{Field: "templateName", Declared: want.name, Observed: template.Name}}, drift...)
	}
	paths, added, taken, err := compareDirectories(ctx, in, seen.ID, want.paths)
	if err != nil {
		return seen, err
	}
	seen.Hindrances, seen.Noted = fixedBy(named, taken), templateNotes{begun: begun && added}
	seen.Drift = slices.Concat(drift, paths)
	seen.Evidence = fmt.Sprintf("template %s has exactly the declared %s", seen.ID, plural(len(want.members), "member"))
	return seen, nil
}

// templateNotes is what is to be known later of a template that was read.
type templateNotes struct {
	begun bool // members and directories are missing, and nothing else differs
}

// Begun implements stepwise: a template is made first, its members and
// directories then.
func (aclTemplateAdapter) Begun(seen managed.External) bool {
	noted, _ := seen.Noted.(templateNotes)
	return noted.begun
}

// fixedBy is in the way for the first of the reasons that is one.
func fixedBy(reasons ...string) []managed.Hindrance {
	if why := cmp.Or(reasons...); why != "" {
		return []managed.Hindrance{managed.Fixed(why)}
	}
	return nil
}

// heldName says which template has a name that another one is to get, empty if
// none has.
func heldName(ctx context.Context, in managed.Input, name string) (string, error) {
	holder, taken, err := aclTemplates.Of(in.Conn).Find(ctx, in.NotBefore, byName(name))
	if err != nil || !taken {
		return "", err
	}
	return fmt.Sprintf("ACL template %q (id %s) has the name that spec.templateName asks for; rename or delete it first, or declare another name", holder.Name, holder.ID), nil
}

// compareMembers lists where the members differ from the declaration. begun
// reports that nothing but members is missing. The manager's own principal is
// a member whether it is declared or not.
func compareMembers(want *declaredTemplate, held []schema.TemplateMember) (drift []v1alpha1.FieldDrift, begun bool) {
	begun = true
	seen := map[memberKey]bool{}
	for _, h := range held {
		key := memberKey{h.SystemID, h.PrincipalID}
		seen[key] = true
		declared, is := want.members[key]
		switch {
		case !is && key == want.own, is && agree(declared.TemplateMemberRequest, h):
		case is:
			begun = begun && key == want.own
			drift = append(drift, v1alpha1.FieldDrift{Field: memberField(declared.spelled), Declared: termsOf(declared.TemplateMemberRequest), Observed: termsHeld(h)})
		default:
			begun = false
			drift = append(drift, v1alpha1.FieldDrift{Field: memberField(key.String()), Declared: "none", Observed: termsHeld(h)})
		}
	}
	for key, declared := range want.members {
		if !seen[key] {
			drift = append(drift, v1alpha1.FieldDrift{Field: memberField(declared.spelled), Declared: termsOf(declared.TemplateMemberRequest), Observed: "none"})
		}
	}
	slices.SortFunc(drift, func(a, b v1alpha1.FieldDrift) int { return strings.Compare(a.Field, b.Field) })
	return drift, begun
}

func memberField(name string) string { return "members[" + name + "]" }

// agree compares by what widening explains: the key server holds more than it
// was asked for.
func agree(want schema.TemplateMemberRequest, held schema.TemplateMember) bool {
	return held.Rights.Has(want.Rights) && want.Rights.Widen().Has(held.Rights) &&
		held.MaxUsage == usage(want.MaxUsage) && held.StartTime == deref(want.StartTime) && held.EndTime == deref(want.EndTime)
}

// usage spells no limit as the key server does.
func usage(limit *int64) int64 {
	if limit == nil {
		return -1
	}
	return *limit
}

func termsOf(m schema.TemplateMemberRequest) string {
	return terms(m.Rights.Widen(), usage(m.MaxUsage), deref(m.StartTime), deref(m.EndTime))
}

func termsHeld(m schema.TemplateMember) string {
	return terms(m.Rights, m.MaxUsage, m.StartTime, m.EndTime)
}

func terms(rights schema.Rights, limit int64, start, end schema.Stamp) string {
	says := strings.Join(rights.Names(), ", ")
	if limit >= 0 {
		says += fmt.Sprintf("; maxUsage %d", limit)
	}
	if !start.IsUnset() {
		says += "; from " + timeOf(start)
	}
	if !end.IsUnset() {
		says += "; until " + timeOf(end)
	}
	return says
}

// compareDirectories lists where the directories that use the template differ
// from the declaration. added reports that none has to be taken away; taken
// says which belongs to another template.
func compareDirectories(ctx context.Context, in managed.Input, template string, want map[string]bool) (drift []v1alpha1.FieldDrift, added bool, taken string, err error) {
	if want == nil {
		return nil, true, "", nil
	}
	listed := directories.Of(in.Conn)
	if err := listed.Refresh(ctx, in.NotBefore); err != nil {
		return nil, false, "", err
	}
	added = true
	var have, declared, foreign []string
	listed.Each(func(d schema.TemplatedDirectory) {
		switch {
		case d.ACLTemplateID.String() == template:
			have = append(have, d.Path)
			added = added && want[d.Path]
		case want[d.Path]:
			foreign = append(foreign, fmt.Sprintf("%s (of template %s)", d.Path, d.ACLTemplateID))
		}
	})
	for path := range want {
		declared = append(declared, path)
	}
	slices.Sort(have)
	slices.Sort(declared)
	slices.Sort(foreign)
	if !slices.Equal(have, declared) {
		drift = []v1alpha1.FieldDrift{{Field: "directories", Declared: strings.Join(declared, ", "), Observed: strings.Join(have, ", ")}}
	}
	if len(foreign) > 0 {
		taken = "spec.directories names " + managed.Enumerate(foreign) + "; a directory has one template: take it away from the other first"
	}
	return drift, added, taken, nil
}

// Create implements adapter. The template is there as soon as it has a name;
// whatever of the rest fails is taken up by the next pass.
func (a aclTemplateAdapter) Create(ctx context.Context, c *link.Connection, want declaredTemplate) (managed.Outcome, error) {
	saved, err := c.Officer.CreateACLTemplate(ctx, want.name)
	if err != nil {
		return managed.Outcome{}, err
	}
	if !saved.Saved || saved.Template == nil {
		return managed.Outcome{}, link.NewProblem(v1alpha1.ReasonNotVerified, "the service reports success without the template as read back")
	}
	aclTemplates.Of(c).Put(*saved.Template)
	out := managed.Outcome{ID: saved.Template.ID.String()}
	out.Evidence, out.Unfinished = a.fill(ctx, c, want, out.ID)
	return out, nil
}

// Update implements adapter.
func (a aclTemplateAdapter) Update(ctx context.Context, c *link.Connection, want declaredTemplate, seen managed.External) (managed.Outcome, error) {
	if slices.ContainsFunc(seen.Drift, func(d v1alpha1.FieldDrift) bool { return d.Field == "templateName" }) {
		saved, err := c.Officer.RenameACLTemplate(ctx, seen.ID, want.name)
		if err != nil {
			return managed.Outcome{}, err
		}
		if !saved.Saved || saved.Template == nil {
			return managed.Outcome{}, link.NewProblem(v1alpha1.ReasonNotVerified, "the service reports success without the template as read back")
		}
		aclTemplates.Of(c).Put(*saved.Template)
	}
	evidence, err := a.fill(ctx, c, want, seen.ID)
	return managed.Outcome{ID: seen.ID, Evidence: evidence}, err
}

// fill makes members and directories what is declared. Those who lose rights
// lose them first.
func (a aclTemplateAdapter) fill(ctx context.Context, c *link.Connection, want declaredTemplate, id string) (string, error) {
	// Whatever becomes of it, what was remembered is out of date.
	defer templateMembers.Of(c).Changed(aclTemplates.Name, id)
	held, err := c.Officer.TemplateMembers(ctx, id)
	if err != nil {
		return "", err
	}
	members := held.Members
	for _, h := range held.Members {
		key := memberKey{h.SystemID, h.PrincipalID}
		if _, is := want.members[key]; is || key == want.own {
			continue
		}
		gone, err := c.Officer.RemoveTemplateMember(ctx, id, key.system, key.principal)
		if err != nil {
			return "", err
		}
		members = gone.Members
	}
	for _, m := range lacking(want, held.Members) {
		saved, err := c.Officer.PutTemplateMember(ctx, id, m)
		if err != nil {
			return "", err
		}
		members = saved.Members
	}
	// Each write was verified; what differs now is the doing of somebody else.
	if drift, _ := compareMembers(&want, members); len(drift) > 0 {
		return "", &link.Problem{Reason: v1alpha1.ReasonProgressing, Outdated: true, Message: managed.FieldsOf(drift) + " changed outside while the members were written"}
	}
	return fmt.Sprintf("reads back with exactly the declared %s", plural(len(want.members), "member")), a.place(ctx, c, want.paths, id)
}

// lacking returns the declared members that are not there or differ.
func lacking(want declaredTemplate, held []schema.TemplateMember) []schema.TemplateMemberRequest {
	var out []schema.TemplateMemberRequest
	for key, declared := range want.members {
		if !slices.ContainsFunc(held, func(h schema.TemplateMember) bool {
			return key == memberKey{h.SystemID, h.PrincipalID} && agree(declared.TemplateMemberRequest, h)
		}) {
			out = append(out, declared.TemplateMemberRequest)
		}
	}
	return out
}

// place makes the directories that use the template those that are declared.
func (aclTemplateAdapter) place(ctx context.Context, c *link.Connection, want map[string]bool, id string) error {
	if want == nil {
		return nil
	}
	var template schema.HexID
	if err := template.UnmarshalText([]byte(id)); err != nil {
		return link.NewProblem(v1alpha1.ReasonNotVerified, "the service answers a template id that %s", err)
	}
	have, err := displace(ctx, c, id, func(path string) bool { return want[path] })
	if err != nil {
		return err
	}
	for path := range want {
		if have[path] {
			continue
		}
		saved, err := c.Officer.CreateTemplatedDirectory(ctx, schema.CreateTemplatedDirectoryRequest{Path: path, ACLTemplateID: template})
		if err != nil {
			return err
		}
		if !saved.Saved || saved.Directory == nil {
			return link.NewProblem(v1alpha1.ReasonNotVerified, "the service reports success without the directory as read back")
		}
		directories.Of(c).Put(*saved.Directory)
	}
	return nil
}

// displace deletes the directories that use the template, but for some, and
// returns those. Other templates may be waiting for a path that comes free, so
// that the change feed is left to tell of it.
func displace(ctx context.Context, c *link.Connection, id string, keep func(path string) bool) (kept map[string]bool, err error) {
	all, err := c.Officer.TemplatedDirectories(ctx, schema.TemplatedDirectoryQuery{})
	if err != nil {
		return nil, err
	}
	kept = map[string]bool{}
	for _, d := range all.Directories {
		if d.ACLTemplateID.String() != id {
			continue
		}
		if keep(d.Path) {
			kept[d.Path] = true
			continue
		}
		gone, err := c.Officer.DeleteTemplatedDirectory(ctx, d.ID.String())
		if err != nil && !link.IsGone(err) {
			return nil, err
		}
		if err == nil && !gone.Gone {
			return nil, link.NewProblem(v1alpha1.ReasonNotVerified, "the service reports success, but not that the directory is gone")
		}
		c.Outdated(directories.Name)
	}
	return kept, nil
}

// Delete implements adapter. Directories go with it only where the object
// declares them; others hold it.
func (aclTemplateAdapter) Delete(ctx context.Context, c *link.Connection, obj *v1alpha1.ACLTemplate, id string) (managed.Outcome, error) {
	if obj.Spec.Directories != nil {
		if _, err := displace(ctx, c, id, func(string) bool { return false }); err != nil {
			return managed.Outcome{}, err
		}
	}
	gone, err := c.Officer.DeleteACLTemplate(ctx, id)
	if err != nil {
		return managed.Outcome{}, err
	}
	if !gone.Gone {
		return managed.Outcome{}, link.NewProblem(v1alpha1.ReasonNotVerified, "the service reports success, but not that the template is gone")
	}
	aclTemplates.Of(c).Drop(id)
	return managed.Outcome{ID: id, Evidence: gone.Detail}, nil
}

// Record implements adapter.
func (aclTemplateAdapter) Record(obj *v1alpha1.ACLTemplate, want *declaredTemplate, seen managed.External, owner bool, _ time.Time) {
	if !owner {
		return
	}
	s := &obj.Status
	s.TemplateID = seen.ID
	if want == nil || len(seen.Drift) > 0 {
		return
	}
	members := int32(len(want.members)) //nolint:gosec // the schema bounds it
	if _, declared := want.members[want.own]; !declared {
		members++
	}
	s.MemberCount, s.DirectoryCount = &members, nil
	if want.paths != nil {
		n := int32(len(want.paths)) //nolint:gosec // the schema bounds it
		s.DirectoryCount = &n
	}
}

package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// aclTemplate returns an ACLTemplate that is not applied yet.
func (s *stage) aclTemplate(name string, members []v1beta1.ACLTemplateMember, change ...func(*v1beta1.ACLTemplate)) *v1beta1.ACLTemplate {
	obj := &v1beta1.ACLTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("template-%d", objects.Add(1))},
		Spec:       v1beta1.ACLTemplateSpec{TemplateName: name, Members: members},
	}
	obj.Spec.KeyServerRef.Name = s.name
	for _, c := range change {
		c(obj)
	}
	return obj
}

func member(principal string, rights ...v1beta1.Right) v1beta1.ACLTemplateMember {
	return v1beta1.ACLTemplateMember{Principal: principal, Rights: rights}
}

func members(all ...v1beta1.ACLTemplateMember) []v1beta1.ACLTemplateMember {
	if all == nil {
		return []v1beta1.ACLTemplateMember{}
	}
	return all
}

// template returns the id of a template, "" if it does not exist.
func (s *stage) template(ctx context.Context, name string) string {
	GinkgoHelper()
	list, err := s.admin().ListACLTemplates(ctx, schema.ACLTemplateQuery{})
	Expect(err).NotTo(HaveOccurred())
	for _, t := range list.Templates {
		if t.Name == name {
			return t.ID.String()
		}
	}
	return ""
}

// memberships returns the rights of a template's members by the names of the members.
func (s *stage) memberships(ctx context.Context, name string) func() map[string]string {
	return func() map[string]string {
		held := map[string]string{}
		list, err := s.admin().ListACLTemplateMembers(ctx, schema.ByID{ID: read(schema.ParseHexID, s.template(ctx, name))})
		if err != nil {
			return map[string]string{"error": err.Error()}
		}
		for _, m := range list.Members {
			found, err := s.admin().LookUpPrincipals(ctx, schema.LookupPrincipalsRequest{Principals: []schema.PrincipalPair{{SystemID: m.SystemID, PrincipalID: m.PrincipalID}}})
			if err != nil || len(found.Principals) != 1 {
				return map[string]string{"error": fmt.Sprint(err)}
			}
			held[found.Principals[0].Name] = termsHeld(m)
		}
		return held
	}
}

// paths returns the directories of a template.
func (s *stage) paths(ctx context.Context, name string) func() []string {
	return func() []string {
		list, err := s.admin().ListTemplatedDirectories(ctx, schema.TemplatedDirectoryQuery{})
		if err != nil {
			return []string{err.Error()}
		}
		id, found := s.template(ctx, name), []string{}
		for _, d := range list.Directories {
			if d.ACLTemplateID.String() == id {
				found = append(found, d.Path)
			}
		}
		return found
	}
}

const owner = "OWNER, READ, WRITE"

var _ = Describe("ACLTemplate", func() {
	It("asks for no members at a resync that finds the same", func(ctx context.Context) {
		often := func(o *v1beta1.ACLTemplate) { o.Spec.ResyncInterval = &metav1.Duration{Duration: 5 * time.Second} }
		objs := []*v1beta1.ACLTemplate{shown.aclTemplate("Rested 1", members(), often), shown.aclTemplate("Rested 2", members(), often)}
		for _, obj := range objs {
			apply(ctx, obj, beReady("created"))
		}
		come := func() { // each template, twice
			GinkgoHelper()
			lists := shown.templates.Load()
			Eventually(func() int32 { return shown.templates.Load() - lists }).WithTimeout(time.Minute).Should(BeNumerically(">=", 3))
		}
		come() // all caches of responses are now filled
		rolls := shown.rolls.Load()
		come()
		Expect(shown.rolls.Load()).To(Equal(rolls))

		id := read(schema.ParseHexID, shown.template(ctx, "Rested 1"))
		group := shown.group(ctx)
		_, err := shown.admin().SetACLTemplateMember(ctx, schema.SetACLTemplateMemberRequest{ID: id, TemplateMemberRequest: schema.TemplateMemberRequest{
			SystemID: group.SystemID, PrincipalID: group.PrincipalID, Rights: 1,
		}})
		Expect(err).NotTo(HaveOccurred())
		Eventually(shown.memberships(ctx, "Rested 1")).Should(HaveLen(1))
		for _, obj := range objs {
			remove(ctx, obj)
		}
	})

	Describe("refusals", func() {
		It("does not let the manager lock itself out", func(ctx context.Context) {
			obj := shown.aclTemplate("Locked Out", members(member("password/admin", "READ")))
			apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, "which needs WRITE without startTime and endTime to change the template"))
			end := metav1.NewTime(time.Now().Add(time.Hour))
			edit(ctx, obj, func(o *v1beta1.ACLTemplate) {
				o.Spec.Members = members(v1beta1.ACLTemplateMember{Principal: "password/admin", Rights: []v1beta1.Right{"OWNER"}, EndTime: &end})
			})
			Consistently(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonInvalidSpec, "which needs WRITE without startTime and endTime to change the template"))
			Expect(shown.template(ctx, "Locked Out")).To(BeEmpty())
			remove(ctx, obj)
		})

		It("knows one principal by two spellings", func(ctx context.Context) {
			group := shown.group(ctx)
			obj := shown.aclTemplate("Twice Named", members(member("group/"+group.Name, "READ"), member(fmt.Sprintf("id/%d/%s", group.SystemID, group.PrincipalID), "WRITE")))
			apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, "are the same principal"))
			remove(ctx, obj)
		})

		It("does not overwrite a template that exists and differs, until told to", func(ctx context.Context) {
			group := shown.group(ctx)
			made, err := shown.admin().CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: "Made By Hand"})
			Expect(err).NotTo(HaveOccurred())
			obj := shown.aclTemplate("Made By Hand", members(member("group/"+group.Name, "READ")))
			apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "exists already and differs in members[group/"+group.Name+"]"))
			Expect(obj.Status.Drift).To(ConsistOf(v1beta1.FieldDrift{Field: "members[group/" + group.Name + "]", Declared: "READ", Observed: "none"}))
			edit(ctx, obj, func(o *v1beta1.ACLTemplate) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
			Eventually(readiness(ctx, obj)).Should(beCorrected())
			Expect(obj.Status.TemplateID).To(Equal(made.ID.String()))
			Expect(obj.Status.Provenance).To(Equal(v1beta1.Adopted))
			Expect(shown.memberships(ctx, "Made By Hand")()).To(Equal(map[string]string{testserver.AdminName: owner, group.Name: "READ"}))

			younger := shown.aclTemplate("Made By Hand", members(), func(o *v1beta1.ACLTemplate) { o.Name = "z" + o.Name })
			apply(ctx, younger, beUnready(v1beta1.ReasonConflict, "is claimed by ACLTemplate default/"+obj.Name))
			remove(ctx, younger)
			remove(ctx, obj)
			Expect(shown.template(ctx, "Made By Hand")).NotTo(BeEmpty(), "what was adopted is not deleted")
		})

		It("takes no name from another template, and gets it when it comes free", func(ctx context.Context) {
			obj := shown.aclTemplate("Template Given", members())
			apply(ctx, obj, beReady("created"))
			outside, err := shown.admin().CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: "Template Held"})
			Expect(err).NotTo(HaveOccurred())
			edit(ctx, obj, func(o *v1beta1.ACLTemplate) { o.Spec.TemplateName = "Template Held" })
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "(id "+outside.ID.String()+") already has this name"))
			Expect(shown.template(ctx, "Template Given")).To(Equal(obj.Status.TemplateID))
			_, err = shown.admin().DeleteACLTemplate(ctx, schema.ByID{ID: outside.ID})
			Expect(err).NotTo(HaveOccurred())
			Eventually(readiness(ctx, obj)).Should(beCorrected())
			Expect(shown.template(ctx, "Template Held")).To(Equal(obj.Status.TemplateID))
			remove(ctx, obj)
		})

		It("takes no directory from another template, and gets it when it comes free", func(ctx context.Context) {
			at := func(o *v1beta1.ACLTemplate) { o.Spec.Directories = []string{"/contended"} }
			first := shown.aclTemplate("First", members(), at)
			apply(ctx, first, beReady("created"))
			second := shown.aclTemplate("Second", members(), at)
			apply(ctx, second, beUnready(v1beta1.ReasonConflict, "/contended/ (template "+first.Status.TemplateID+")"))
			Expect(shown.template(ctx, "Second")).To(BeEmpty())
			edit(ctx, first, func(o *v1beta1.ACLTemplate) { o.Spec.Directories = []string{"/elsewhere/"} })
			Eventually(readiness(ctx, second)).Should(beReady("created"))
			Expect(shown.paths(ctx, "Second")()).To(ConsistOf("/contended/"))
			Expect(shown.paths(ctx, "First")()).To(ConsistOf("/elsewhere/"))
			remove(ctx, second)
			remove(ctx, first)
		})
	})

	It("is created, edited, renamed, repaired and deleted", func(ctx context.Context) {
		readers, writers := shown.group(ctx), shown.group(ctx)
		limit, start := int64(0), metav1.NewTime(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
		limited := v1beta1.ACLTemplateMember{Principal: "group/" + readers.Name, Rights: []v1beta1.Right{"READ"}, MaxUsage: &limit, StartTime: &start}
		obj := shown.aclTemplate("Life", members(limited, member(fmt.Sprintf("id/%d/%s", writers.SystemID, writers.PrincipalID), "WRITE")),
			func(o *v1beta1.ACLTemplate) { o.Spec.Directories = []string{"/life", "/life/after/"} })
		apply(ctx, obj, beReady("created: the second read shows exactly the declared 2 members"))
		whole := map[string]string{testserver.AdminName: owner, readers.Name: "READ; maxUsage 0; from 2027-01-01T00:00:00Z", writers.Name: "READ, WRITE"}
		Expect(shown.memberships(ctx, "Life")()).To(Equal(whole))
		Expect(shown.paths(ctx, "Life")()).To(ConsistOf("/life/", "/life/after/"))
		Expect(obj.Status.MemberCount).To(HaveValue(BeEquivalentTo(3)))
		Expect(obj.Status.DirectoryCount).To(HaveValue(BeEquivalentTo(2)))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))

		By("finding no drift in what the key server widens")
		annotate(ctx, obj, v1beta1.AnnotationReconcileRequestedAt, "now")
		Eventually(func() string { _ = readiness(ctx, obj)(); return obj.Status.LastHandledReconcileAt }).Should(Equal("now"))
		Expect(obj.Status.Drift).To(BeEmpty())
		Expect(readiness(ctx, obj)()).To(beReady("re-read"))

		By("renaming")
		id := obj.Status.TemplateID
		edit(ctx, obj, func(o *v1beta1.ACLTemplate) { o.Spec.TemplateName = "Afterlife" })
		Eventually(readiness(ctx, obj)).Should(beCorrected())
		Expect(shown.template(ctx, "Afterlife")).To(Equal(id))

		By("repairing outside changes of members")
		_, err := shown.admin().RemoveACLTemplateMember(ctx, schema.RemoveACLTemplateMemberRequest{ID: read(schema.ParseHexID, id), SystemID: writers.SystemID, PrincipalID: writers.PrincipalID})
		Expect(err).To(beDone())
		Eventually(shown.memberships(ctx, "Afterlife")).Should(Equal(whole))
		Eventually(eventsAbout(ctx, obj)).Should(ContainElements("DriftFound", "Updated"))
		_, err = shown.admin().SetACLTemplateMember(ctx, schema.SetACLTemplateMemberRequest{ID: read(schema.ParseHexID, id), TemplateMemberRequest: schema.TemplateMemberRequest{SystemID: readers.SystemID, PrincipalID: readers.PrincipalID, Rights: schema.RightNamed("OWNER")}})
		Expect(err).To(beDone())
		intruder := shown.group(ctx)
		_, err = shown.admin().SetACLTemplateMember(ctx, schema.SetACLTemplateMemberRequest{ID: read(schema.ParseHexID, id), TemplateMemberRequest: schema.TemplateMemberRequest{SystemID: intruder.SystemID, PrincipalID: intruder.PrincipalID, Rights: schema.RightNamed("OWNER")}})
		Expect(err).To(beDone())
		Eventually(shown.memberships(ctx, "Afterlife")).Should(Equal(whole))

		By("repairing outside changes of directories")
		list, err := shown.admin().ListTemplatedDirectories(ctx, schema.TemplatedDirectoryQuery{Path: []string{"/life/after/"}})
		Expect(err).NotTo(HaveOccurred())
		_, err = shown.admin().DeleteTemplatedDirectory(ctx, schema.ByID{ID: list.Directories[0].ID})
		Expect(err).To(beDone())
		_, err = shown.admin().CreateTemplatedDirectory(ctx, schema.CreateTemplatedDirectoryRequest{Path: "/intruding/", ACLTemplateID: list.Directories[0].ACLTemplateID})
		Expect(err).To(beDone())
		Eventually(shown.paths(ctx, "Afterlife")).Should(ConsistOf("/life/", "/life/after/"))
		Eventually(readiness(ctx, obj)).Should(beReady(""))

		By("deleting it with its directories")
		remove(ctx, obj)
		Expect(shown.template(ctx, "Afterlife")).To(BeEmpty())
		after, err := shown.admin().ListTemplatedDirectories(ctx, schema.TemplatedDirectoryQuery{Path: []string{"/life/", "/life/after/"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(after.Directories).To(BeEmpty())
	})

	It("waits for a member that does not exist yet", func(ctx context.Context) {
		name := fmt.Sprintf("Newcomers %d", objects.Add(1))
		obj := shown.aclTemplate("Waiting", members(member("group/"+name, "READ")))
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, "no principal of type group"))
		Expect(shown.template(ctx, "Waiting")).To(BeEmpty())
		_, err := shown.admin().CreateGroup(ctx, schema.CreateGroupRequest{Name: name})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		remove(ctx, obj)
	})

	It("whose directories are declared elsewhere is not deleted while some use it", func(ctx context.Context) {
		obj := shown.aclTemplate("In Use", members())
		apply(ctx, obj, beReady("created"))
		var id schema.HexID
		Expect(id.UnmarshalText([]byte(obj.Status.TemplateID))).To(Succeed())
		made, err := shown.admin().CreateTemplatedDirectory(ctx, schema.CreateTemplatedDirectoryRequest{Path: "/in/use/", ACLTemplateID: id})
		Expect(err).NotTo(HaveOccurred())
		Expect(kube.Delete(ctx, obj)).To(Succeed())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonInUse, "templated directories use"))
		_, err = shown.admin().DeleteTemplatedDirectory(ctx, schema.ByID{ID: made.ID})
		Expect(err).NotTo(HaveOccurred())
		Eventually(gone(ctx, obj)).Should(BeTrue())
		Expect(shown.template(ctx, "In Use")).To(BeEmpty())
	})

	It("finishes a creation that was cut short", func(ctx context.Context) {
		s := newStage(ctx)
		group := s.group(ctx)
		s.onPut(func(context.Context) error {
			return &apiclient.Error{Status: 500, Code: "INTERNAL", Detail: "cut short"}
		})
		obj := s.aclTemplate("Cut Short", members(member("group/"+group.Name, "WRITE")))
		apply(ctx, obj, beUnready(v1beta1.ReasonProgressing, "cut short"))
		Eventually(func() string { _ = readiness(ctx, obj)(); return obj.Status.TemplateID }).Should(Equal(s.template(ctx, "Cut Short")))
		Expect(obj.Status.TemplateID).NotTo(BeEmpty())
		s.onPut(nil)
		Eventually(readiness(ctx, obj)).Should(beCorrected())
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))
		Expect(s.memberships(ctx, "Cut Short")()).To(HaveKeyWithValue(group.Name, "READ, WRITE"))
		remove(ctx, obj)
		Expect(s.template(ctx, "Cut Short")).To(BeEmpty())
	})

	It("observes without writing", func(ctx context.Context) {
		obj := shown.aclTemplate("Observed", members(), func(o *v1beta1.ACLTemplate) { o.Spec.ManagementPolicy = v1beta1.Observe })
		apply(ctx, obj, beUnready(v1beta1.ReasonDrifted, "does not exist on the key server"))
		made, err := shown.admin().CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: "Observed"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beReady("exactly the declared 0 members"))
		edit(ctx, obj, func(o *v1beta1.ACLTemplate) { o.Spec.Directories = []string{"/observed"} })
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDrifted, "differs in directories"))
		Expect(shown.paths(ctx, "Observed")()).To(BeEmpty())
		remove(ctx, obj)
		_, err = shown.admin().DeleteACLTemplate(ctx, schema.ByID{ID: made.ID})
		Expect(err).NotTo(HaveOccurred())
	})
})

func TestCompareMembers(t *testing.T) {
	id := func(n byte) memberKey { return memberKey{system: 1, principal: schema.DecimalID{7: n}} }
	bits := func(names ...string) (r schema.Rights) {
		for _, n := range names {
			r |= schema.RightNamed(n)
		}
		return r
	}
	held := func(n byte, rights schema.Rights) schema.TemplateMember {
		return schema.TemplateMember{SystemID: 1, PrincipalID: schema.DecimalID{7: n}, Rights: rights, MaxUsage: -1}
	}
	const own, a, b = 1, 2, 3
	ofOwn := held(own, bits("OWNER", "WRITE", "READ"))
	cases := map[string]struct {
		reason string
		rights map[byte]schema.Rights // declared rights
		held   []schema.TemplateMember
		fields []string
		begun  bool
	}{
		"nothing declared":   {"the manager's own membership is no drift", nil, []schema.TemplateMember{ofOwn}, nil, true},
		"own declared":       {"nor where it is declared", map[byte]schema.Rights{own: bits("OWNER")}, []schema.TemplateMember{ofOwn}, nil, true},
		"own declared lower": {"declared, it is compared", map[byte]schema.Rights{own: bits("WRITE")}, []schema.TemplateMember{ofOwn}, []string{"members[#1]"}, true},
		"widened":            {"what widening explains is no drift", map[byte]schema.Rights{a: bits("WRITE")}, []schema.TemplateMember{ofOwn, held(a, bits("READ", "WRITE"))}, nil, true},
		"more than widened":  {"more than that is", map[byte]schema.Rights{a: bits("READ")}, []schema.TemplateMember{ofOwn, held(a, bits("READ", "WRITE"))}, []string{"members[#2]"}, false},
		"missing":            {"a creation may have been cut short", map[byte]schema.Rights{a: bits("READ"), b: bits("READ")}, []schema.TemplateMember{ofOwn, held(a, bits("READ"))}, []string{"members[#3]"}, true},
		"extra":              {"no creation leaves another's members", nil, []schema.TemplateMember{ofOwn, held(a, bits("READ"))}, []string{"members[id/1/2]"}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := membership{own: id(own), members: map[memberKey]declaredMember{}}
			for n, rights := range tc.rights {
				want.members[id(n)] = declaredMember{schema.TemplateMemberRequest{SystemID: 1, PrincipalID: schema.DecimalID{7: n}, Rights: rights}, fmt.Sprintf("#%d", n)}
			}
			drift, begun := compareMembers(want, tc.held)
			var fields []string
			for _, d := range drift {
				fields = append(fields, d.Field)
			}
			if diff := cmp.Diff(tc.fields, fields); diff != "" || begun != tc.begun {
				t.Errorf("%s: begun is %t, drift: %s", tc.reason, begun, diff)
			}
		})
	}
}

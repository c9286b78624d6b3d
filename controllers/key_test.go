package controllers

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// key returns a Key that is not applied yet.
func (s *stage) key(change ...func(*v1beta1.Key)) *v1beta1.Key {
	obj := &v1beta1.Key{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("key-%d", objects.Add(1))},
		Spec:       v1beta1.KeySpec{Algorithm: v1beta1.HMACSHA384},
	}
	obj.Spec.KeyServerRef.Name = s.name
	for _, c := range change {
		c(obj)
	}
	return obj
}

func withMembers(all ...v1beta1.ACLTemplateMember) func(*v1beta1.Key) {
	return func(o *v1beta1.Key) { o.Spec.Members = members(all...) }
}

func taking(line schema.HiddenLink) func(*v1beta1.Key) {
	return func(o *v1beta1.Key) { text := line.String(); o.Spec.Lineage = &text }
}

// mint creates a key outside of Kubernetes.
func (s *stage) mint(ctx context.Context) schema.HiddenLink {
	GinkgoHelper()
	no := false
	made, err := s.admin().MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384", Exportable: &no})
	Expect(err).NotTo(HaveOccurred())
	return made.TTag
}

// line reads the keys of a lineage.
func (s *stage) line(ctx context.Context, first string) []schema.KeyFacts {
	GinkgoHelper()
	lineage := read(parseLink, first)
	page, err := s.admin().ListKeys(ctx, schema.KeyQuery{Lineage: &lineage})
	Expect(err).NotTo(HaveOccurred())
	return page.Keys
}

func (s *stage) states(ctx context.Context, first string) func() []string {
	return func() (states []string) {
		for _, k := range s.line(ctx, first) {
			states = append(states, stateOf(k))
		}
		return states
	}
}

// keys counts the keys that the administrator may read.
func (s *stage) keys(ctx context.Context) int {
	GinkgoHelper()
	page, err := s.admin().ListKeys(ctx, schema.KeyQuery{})
	Expect(err).NotTo(HaveOccurred())
	return page.Count
}

// rightsOn returns the rights on a key by the ids of the principals.
func (s *stage) rightsOn(ctx context.Context, key schema.HiddenLink) func() map[string]string {
	return func() map[string]string {
		got, err := s.admin().GetACL(ctx, schema.KeyRequest{TTag: key})
		if err != nil {
			return map[string]string{"error": err.Error()}
		}
		held := map[string]string{}
		for _, m := range membersOf(got.ACL) {
			held[memberKey{m.SystemID, m.PrincipalID}.String()] = termsHeld(m)
		}
		return held
	}
}

// self returns the manager's principal in the format of an ACL entry.
func (s *stage) self(ctx context.Context) string {
	GinkgoHelper()
	session, err := s.admin().GetCurrentSession(ctx)
	Expect(err).NotTo(HaveOccurred())
	return memberKey{session.Principal.SystemID, session.Principal.PrincipalID}.String()
}

func idOf(p schema.Principal) string { return memberKey{p.SystemID, p.PrincipalID}.String() }

// keyMark returns the owner string in the mark of a lineage, or "".
func (s *stage) keyMark(ctx context.Context, first string) func() string {
	return func() string {
		list, err := s.admin().ListOwners(ctx, schema.OwnerQuery{Kind: lineages.Feed})
		if err != nil {
			return err.Error()
		}
		for _, m := range list.Owners {
			if m.ID.String() == idOfLink(first) {
				return m.Owner
			}
		}
		return ""
	}
}

// lose removes a Key like vanish does.
func lose(ctx context.Context, obj *v1beta1.Key) {
	GinkgoHelper()
	vanish(ctx, obj)
	obj.Status = v1beta1.KeyStatus{}
}

// notes returns the notes of an object's events that have this reason.
func notes(ctx context.Context, obj client.Object, reason string) func() []string {
	return func() (said []string) {
		all := &eventsv1.EventList{}
		if err := kube.List(ctx, all); err != nil {
			return []string{err.Error()}
		}
		for _, e := range all.Items {
			if e.Regarding.UID == obj.GetUID() && e.Reason == reason {
				said = append(said, e.Note)
			}
		}
		return said
	}
}

func toldIn(ctx context.Context, name string) func() map[string]string {
	return func() map[string]string {
		m := &corev1.ConfigMap{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, m); err != nil {
			return map[string]string{"error": err.Error()}
		}
		return m.Data
	}
}

var _ = Describe("Key", func() {
	Describe("refusals", func() {
		It("waits for a member that nobody knows, and mints nothing", func(ctx context.Context) {
			s := newStage(ctx)
			obj := s.key(withMembers(member("group/Nobody Yet", "READ")))
			apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, `has no principal of type group with the name "Nobody Yet"`))
			Expect(s.keys(ctx)).To(BeZero())
			_, err := s.admin().CreateGroup(ctx, schema.CreateGroupRequest{Name: "Nobody Yet"})
			Expect(err).NotTo(HaveOccurred())
			Eventually(readiness(ctx, obj)).Should(beReady("created"))
			remove(ctx, obj)
		})

		It("does not let the manager lose its keys", func(ctx context.Context) {
			s := newStage(ctx)
			end := metav1.NewTime(time.Now().Add(time.Hour))
			for _, m := range []v1beta1.ACLTemplateMember{
				member("password/admin", "WRITE"),
				{Principal: "password/admin", Rights: []v1beta1.Right{"OWNER"}, EndTime: &end},
			} {
				obj := s.key(withMembers(m))
				apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, `the manager logs in as "password/admin", which must be OWNER`))
				remove(ctx, obj)
			}
			Expect(s.keys(ctx)).To(BeZero())
		})

		It("waits for a directory above its path", func(ctx context.Context) {
			s := newStage(ctx)
			path := "/workloads/one"
			obj := s.key(func(o *v1beta1.Key) { o.Spec.Path = &path })
			apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, `spec.path: "/workloads/one" is not below a templated directory`))
			Expect(s.mints.Load()).To(BeZero())
			group := s.group(ctx)
			apply(ctx, s.aclTemplate("Workloads", members(member("group/"+group.Name, "READ")), func(o *v1beta1.ACLTemplate) { o.Spec.Directories = []string{"/workloads/"} }), beReady("created"))
			Eventually(readiness(ctx, obj)).Should(beReady("created"))
			Expect(s.rightsOn(ctx, read(parseLink, obj.Status.HiddenLink))()).To(Equal(map[string]string{s.self(ctx): owner, idOf(group): "READ"}), "who is left out of a spec without members stays")
			Expect(obj.Status.MemberCount).To(BeNil())

			By("being complete as soon as there are members")
			edit(ctx, obj, func(o *v1beta1.Key) { o.Spec.Members = members(member("password/admin", "OWNER")) })
			Eventually(s.rightsOn(ctx, read(parseLink, obj.Status.HiddenLink))).Should(Equal(map[string]string{s.self(ctx): owner}))
			remove(ctx, obj)
		})

		It("needs a grant for its name, its path and the line that it takes over", func(ctx context.Context) {
			s := newGrantingStage(ctx, grant("keys", []v1beta1.GrantedKind{"Key"}, []string{"key/default/allowed", "/allowed/*"}))
			line := s.mint(ctx)
			elsewhere := "/elsewhere/a"
			refused := s.key()
			apply(ctx, refused, beUnready(v1beta1.ReasonAccessDenied, `lacks the name "key/default/`+refused.Name+`"`))
			apply(ctx, s.key(func(o *v1beta1.Key) { o.Spec.Path = &elsewhere }), beUnready(v1beta1.ReasonAccessDenied, `lacks the name "/elsewhere/a"`))
			taker := s.key(taking(line), func(o *v1beta1.Key) { o.Name = "allowed" })
			apply(ctx, taker, beUnready(v1beta1.ReasonAccessDenied, `lacks the name "lineage/`+line.String()+`"`))
			s.regrant(ctx, grant("keys", []v1beta1.GrantedKind{"Key"}, []string{"key/default/allowed", "lineage/*"}))
			Eventually(readiness(ctx, taker)).Should(beUnready(v1beta1.ReasonAccessDenied, `grant "keys" of the KeyServer does not allow adoption`))
			adopting := grant("keys", []v1beta1.GrantedKind{"Key"}, []string{"key/default/allowed", "lineage/*"})
			adopting.Adopt = true
			s.regrant(ctx, adopting)
			Eventually(readiness(ctx, taker)).Should(beReady("took over"))
			Expect(taker.Status.Provenance).To(Equal(v1beta1.Adopted))
			Expect(s.mints.Load()).To(BeZero())
			remove(ctx, taker)
			Expect(s.states(ctx, line.String())()).To(Equal([]string{stateEnabled}), "what was taken over stays")
			Expect(s.keyMark(ctx, line.String())()).To(BeEmpty())
		})

		It("takes over no line that is none, is another's, or is of another kind", func(ctx context.Context) {
			s := newStage(ctx)
			line := s.mint(ctx)
			rotated, err := s.admin().RotateKey(ctx, schema.KeyRequest{TTag: line})
			Expect(err).NotTo(HaveOccurred())
			apply(ctx, s.key(taking(rotated.TTag)), beUnready(v1beta1.ReasonInvalidSpec, "no key lineage begins with "+rotated.TTag.String()))
			other := s.key(taking(line), func(o *v1beta1.Key) { o.Spec.Algorithm = v1beta1.AES256 })
			apply(ctx, other, beUnready(v1beta1.ReasonConflict, "spec.algorithm: declared is AES-256, but key lineage "+line.String()+" has HMAC-SHA384"))
			remove(ctx, other)
			exported := s.key(taking(line), func(o *v1beta1.Key) { o.Spec.Exportable = true })
			apply(ctx, exported, beUnready(v1beta1.ReasonConflict, "spec.exportable: declared is true"))
			remove(ctx, exported)
			_, err = s.admin().SetOwner(ctx, schema.SetOwnerRequest{OwnedObject: schema.OwnedObject{Kind: "key", ID: read(schema.ParseHexID, idOfLink(line.String()))}, Owner: "somebody"})
			Expect(err).NotTo(HaveOccurred())
			apply(ctx, s.key(taking(line)), beUnready(v1beta1.ReasonConflict, "is owned by somebody"))
			Expect(s.states(ctx, line.String())()).To(Equal([]string{stateEnabled, stateEnabled}))
		})

		It("names the operation that the manager lacks", func(ctx context.Context) {
			s := newStageOn(ctx, testserver.Start(GinkgoTB(), func(c *server.Config) { c.Deployment = "split" }))
			obj := s.key()
			apply(ctx, obj, beUnready(v1beta1.ReasonAccessDenied, "Create Key"))
		})

		It("says what to do if destroying a key takes an approval", func(ctx context.Context) {
			s := newStage(ctx)
			obj := s.key()
			apply(ctx, obj, beReady("created"))
			_, err := s.admin().CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{
				Name: "approver", Password: "a password of an approver", RoleIDs: []schema.HexID{s.roles(ctx)["Administrator"].ID},
			})
			Expect(err).NotTo(HaveOccurred())
			_, err = s.admin().SetApprovalPolicy(ctx, schema.ApprovalPolicyRequest{Rules: []schema.ApprovalRule{{Operation: "destroyKey", Approvers: 1, Duty: "any"}}})
			Expect(err).NotTo(HaveOccurred())
			Expect(kube.Delete(ctx, obj)).To(Succeed())
			Eventually(readiness(ctx, obj)).Should(And(
				beUnready(v1beta1.ReasonAccessDenied, "APPROVAL_REQUIRED: destroying a key requires the approval of another principal"),
				beUnready(v1beta1.ReasonAccessDenied, "ask an owner of the key to request the approval of POST /api/keys/destroy, or set deletionPolicy to Retain"),
			))
			Expect(s.states(ctx, obj.Status.Lineage)()).To(Equal([]string{stateEnabled}))
			edit(ctx, obj, func(o *v1beta1.Key) { o.Spec.DeletionPolicy = v1beta1.RetainExternal })
			Eventually(gone(ctx, obj)).Should(BeTrue())
			Expect(s.states(ctx, obj.Status.Lineage)()).To(Equal([]string{stateEnabled}))
		})

		It("does not take the manager's being shut out for a line that is gone", func(ctx context.Context) {
			s := newStage(ctx)
			group := s.group(ctx)
			obj := s.key(withMembers(member("group/"+group.Name, "OWNER")))
			apply(ctx, obj, beReady("created"))
			session, err := s.admin().GetCurrentSession(ctx)
			Expect(err).NotTo(HaveOccurred())
			_, err = s.admin().RevokeACL(ctx, schema.ACLRevokeRequest{TTag: read(parseLink, obj.Status.HiddenLink), SystemID: session.Principal.SystemID, PrincipalID: session.Principal.PrincipalID})
			Expect(err).NotTo(HaveOccurred())
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonAccessDenied, "no longer grants the manager's principal the rights that it needs"))
			Expect(s.mints.Load()).To(BeEquivalentTo(1))
		})
	})

	It("is minted, given, rotated, repaired and destroyed in time", func(ctx context.Context) {
		s := newStage(ctx)
		readers, others := s.group(ctx), s.group(ctx)
		limit := int64(5)
		obj := s.key(withMembers(v1beta1.ACLTemplateMember{Principal: "group/" + readers.Name, Rights: []v1beta1.Right{"READ"}, MaxUsage: &limit}, member(idOf(others), "WRITE")),
			func(o *v1beta1.Key) {
				o.Spec.Rotation = &v1beta1.KeyRotation{EveryDays: 30, VerifyOnlyDays: 7, DestroyAfterDays: 7}
				o.Spec.Publish = &v1beta1.KeyPublication{ConfigMap: v1beta1.ConfigMapTarget{Name: o.Name}}
			})
		apply(ctx, obj, beReady("is at generation 1; each ACL has exactly the declared 3 members"))
		first := read(parseLink, obj.Status.HiddenLink)
		Expect(obj.Status.Lineage).To(Equal(first.String()))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))
		Expect(obj.Status.State).To(Equal(stateEnabled))
		Expect(obj.Status.MemberCount).To(HaveValue(BeEquivalentTo(3)))
		Expect(obj.Status.NextRotationTime.Time).To(BeTemporally("~", time.Now().AddDate(0, 0, 30), time.Minute))
		whole := map[string]string{s.self(ctx): owner, idOf(readers): "READ; maxUsage 5", idOf(others): "READ, WRITE"}
		Expect(s.rightsOn(ctx, first)()).To(Equal(whole))
		Expect(s.line(ctx, first.String())[0].Exportable).To(HaveValue(BeFalse()))
		Eventually(toldIn(ctx, obj.Name)).Should(Equal(map[string]string{
			"hiddenLink": first.String(), "lineage": first.String(), "generation": "1", "algorithm": "HMAC-SHA384",
			"url": s.server.URL(), "ca.crt": string(s.server.CA(GinkgoTB())),
		}))

		By("following a rotation")
		rotated, err := s.admin().RotateKey(ctx, schema.KeyRequest{TTag: first})
		Expect(err).NotTo(HaveOccurred())
		second := rotated.TTag
		Eventually(toldIn(ctx, obj.Name)).Should(And(HaveKeyWithValue("hiddenLink", second.String()), HaveKeyWithValue("generation", "2"), HaveKeyWithValue("lineage", first.String())))
		Eventually(readiness(ctx, obj)).Should(beReady("is at generation 2"))
		Expect(obj.Status.Generation).To(HaveValue(BeEquivalentTo(2)))
		Eventually(eventsAbout(ctx, obj)).Should(ContainElement("Rotated"))

		By("repairing the lists of both generations, and the rotation")
		_, err = s.admin().RevokeACL(ctx, schema.ACLRevokeRequest{TTag: second, SystemID: others.SystemID, PrincipalID: others.PrincipalID})
		Expect(err).To(beDone())
		Eventually(s.rightsOn(ctx, second)).Should(Equal(whole))
		intruder := s.group(ctx)
		_, err = s.admin().GrantACL(ctx, schema.ACLChangeRequest{TTag: first, SystemID: intruder.SystemID, PrincipalID: intruder.PrincipalID, Rights: schema.RightNamed("OWNER")})
		Expect(err).To(beDone())
		Eventually(s.rightsOn(ctx, first)).Should(Equal(whole))
		Eventually(eventsAbout(ctx, obj)).Should(ContainElements("Created", "DriftFound", "Updated"))
		_, err = s.admin().SetKeyRotation(ctx, schema.KeyRotationRequest{TTag: first})
		Expect(err).To(beDone())
		Eventually(func() *schema.KeyRotation { return s.line(ctx, first.String())[1].Rotation }).Should(HaveValue(Equal(schema.KeyRotation{EveryDays: 30, VerifyOnlyDays: 7, DestroyAfterDays: 7})))

		By("taking rights on old generations with the member")
		edit(ctx, obj, func(o *v1beta1.Key) { o.Spec.Members = members(member(idOf(others), "READ")); o.Spec.Rotation = nil })
		for _, k := range []schema.HiddenLink{first, second} {
			Eventually(s.rightsOn(ctx, k)).Should(Equal(map[string]string{s.self(ctx): owner, idOf(others): "READ"}))
		}
		Eventually(func() *schema.KeyRotation { return s.line(ctx, first.String())[1].Rotation }).Should(BeNil())
		Eventually(readiness(ctx, obj)).Should(beCorrected())

		By("being deleted")
		edit(ctx, obj, func(o *v1beta1.Key) { o.Spec.DestroyAfterDays = 3 })
		copied := obj.DeepCopy()
		remove(ctx, obj)
		Expect(s.states(ctx, first.String())()).To(Equal([]string{stateDestroying, stateDestroying}))
		goes := *s.line(ctx, first.String())[1].DestroyAt
		Expect(goes).To(BeTemporally("~", time.Now().AddDate(0, 0, 3), time.Minute))
		Eventually(notes(ctx, copied, "Removing")).Should(ContainElement(ContainSubstring("schedules the destruction of 2 keys for " + day(goes))))
		Eventually(notes(ctx, copied, "Deleted")).Should(ContainElement(ContainSubstring("the last one on " + day(goes))))
		Expect(s.keyMark(ctx, first.String())()).To(BeEmpty())
		Eventually(toldIn(ctx, copied.Name)).Should(HaveKey("error"))

		By("being declared anew")
		again := s.key(func(o *v1beta1.Key) { o.Name = copied.Name })
		apply(ctx, again, beReady("created"))
		Expect(again.Status.Lineage).NotTo(Equal(first.String()))
		remove(ctx, again)
	})

	It("encrypts, too", func(ctx context.Context) {
		s := newStage(ctx)
		obj := s.key(func(o *v1beta1.Key) { o.Spec.Algorithm, o.Spec.Exportable = v1beta1.AES256, true })
		apply(ctx, obj, beReady("created"))
		line := read(parseLink, obj.Status.Lineage)
		Expect(s.line(ctx, obj.Status.Lineage)[0]).To(And(HaveField("Algorithm", HaveValue(Equal("AES-256"))), HaveField("Exportable", HaveValue(BeTrue()))))
		sealed, err := s.admin().Encrypt(ctx, schema.EncryptRequest{Lineage: &line, Data: []byte("hello")})
		Expect(err).NotTo(HaveOccurred())
		_, err = s.admin().RotateKey(ctx, schema.KeyRequest{TTag: line})
		Expect(err).NotTo(HaveOccurred())
		opened, err := s.admin().Decrypt(ctx, schema.DecryptRequest{Lineage: &line, Ciphertext: sealed.Ciphertext})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(opened.Data)).To(Equal("hello"))
		remove(ctx, obj)
	})

	It("finds what it made again", func(ctx context.Context) {
		s := newStage(ctx)
		By("the answer of the minting being lost")
		var lost atomic.Int32
		s.onMinted(func(schema.KeyMetadata) error {
			if lost.Add(1) == 1 {
				return &apiclient.Error{Status: 503, Code: "UNAVAILABLE", Detail: "the answer was lost"}
			}
			return nil
		})
		obj := s.key()
		apply(ctx, obj, beReady("took over"))
		Expect(s.mints.Load()).To(BeEquivalentTo(1))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))
		line := obj.Status.Lineage

		By("the cluster being lost")
		lose(ctx, obj)
		apply(ctx, obj, beReady("took over"))
		Expect(obj.Status.Lineage).To(Equal(line))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))

		By("being cut short between minting and giving")
		s.onGive(func(context.Context) error {
			return &apiclient.Error{Status: 500, Code: "OP_FAILED", Detail: "not now"}
		})
		group := s.group(ctx)
		half := s.key(withMembers(member("group/"+group.Name, "READ")))
		apply(ctx, half, beUnready(v1beta1.ReasonProgressing, "not now"))
		Expect(half.Status.Lineage).NotTo(BeEmpty())
		s.onGive(nil)
		Eventually(readiness(ctx, half)).Should(beCorrected())
		Expect(s.keys(ctx)).To(Equal(2))
		remove(ctx, half)
		remove(ctx, obj)
		Expect(s.states(ctx, line)()).To(Equal([]string{stateDestroying}))
	})

	It("leaves what was disabled or destroyed by hand as it is, and says so", func(ctx context.Context) {
		s := newStage(ctx)
		group := s.group(ctx)
		obj := s.key(withMembers(member("group/"+group.Name, "READ")))
		apply(ctx, obj, beReady("created"))
		key := read(parseLink, obj.Status.HiddenLink)
		_, err := s.admin().DisableKey(ctx, schema.KeyRequest{TTag: key})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "generation 1, the newest of key lineage "+key.String()+", is in the state disabled"))
		Expect(obj.Status.State).To(Equal("disabled"))

		By("still taking rights away")
		edit(ctx, obj, func(o *v1beta1.Key) { o.Spec.Members = members() })
		Eventually(s.rightsOn(ctx, key)).Should(Equal(map[string]string{s.self(ctx): owner}))
		Eventually(readiness(ctx, obj)).Should(And(beUnready(v1beta1.ReasonConflict, "is in the state disabled"), HaveField("Current", true)))
		Expect(s.states(ctx, key.String())()).To(Equal([]string{"disabled"}))

		By("reporting it where it only observes")
		edit(ctx, obj, func(o *v1beta1.Key) { o.Spec.ManagementPolicy = v1beta1.Observe })
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDrifted, "differs in state"))
		edit(ctx, obj, func(o *v1beta1.Key) { o.Spec.ManagementPolicy = v1beta1.Manage })
		_, err = s.admin().EnableKey(ctx, schema.KeyRequest{TTag: key})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beReady(""))

		By("being destroyed by hand")
		_, err = s.admin().DestroyKey(ctx, schema.DestroyKeyRequest{TTag: key})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "is in the state destroying and is destroyed on "))
		lose(ctx, obj)
		apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "restore each key (POST /api/keys/restore) and enable it"))
		Expect(s.mints.Load()).To(BeEquivalentTo(1), "nobody makes another line behind the back of who had this one destroyed")
		_, err = s.admin().RestoreKey(ctx, schema.KeyRequest{TTag: key})
		Expect(err).NotTo(HaveOccurred())
		_, err = s.admin().EnableKey(ctx, schema.KeyRequest{TTag: key})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		_, err = s.admin().DestroyKey(ctx, schema.DestroyKeyRequest{TTag: key})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "is in the state destroying"))
		remove(ctx, obj)
		Expect(s.keyMark(ctx, key.String())()).To(BeEmpty())
	})

	It("rotates from Git, and old MACs go on being verified", func(ctx context.Context) {
		var ahead atomic.Int64 // offset of the key server's clock
		s := newStageOn(ctx, testserver.Start(GinkgoTB(), func(c *server.Config) {
			c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		}))
		obj := s.key(func(o *v1beta1.Key) {
			o.Spec.Rotation = &v1beta1.KeyRotation{EveryDays: 1, VerifyOnlyDays: 30, DestroyAfterDays: 30}
			o.Spec.Publish = &v1beta1.KeyPublication{ConfigMap: v1beta1.ConfigMapTarget{Name: o.Name}}
		})
		apply(ctx, obj, beReady("created"))
		line := read(parseLink, obj.Status.Lineage)
		canary := s.admin()
		made, err := canary.MAC(ctx, line, bytes.NewReader([]byte("a message")))
		Expect(err).NotTo(HaveOccurred())
		watching, stop := context.WithCancel(ctx)
		verified, broken := atomic.Int32{}, make(chan error, 1)
		go func() {
			defer close(broken)
			for watching.Err() == nil {
				got, err := canary.VerifyMAC(ctx, schema.VerifyMACRequest{Lineage: &line, MAC: made.MAC}, bytes.NewReader([]byte("a message")))
				if err != nil || !got.Valid {
					broken <- fmt.Errorf("after %d: %+v, %w", verified.Load(), got, err)
					return
				}
				verified.Add(1)
			}
		}()
		for generation := 2; generation <= 3; generation++ {
			ahead.Add(int64(25 * time.Hour))
			Eventually(toldIn(ctx, obj.Name)).Should(HaveKeyWithValue("generation", fmt.Sprint(generation)))
			now := read(parseLink, toldIn(ctx, obj.Name)()["hiddenLink"])
			again, err := canary.MAC(ctx, line, bytes.NewReader([]byte("a message")))
			Expect(err).NotTo(HaveOccurred())
			Expect(again.TTag).To(Equal(now))
		}
		before := verified.Load()
		Eventually(verified.Load).Should(BeNumerically(">", before))
		stop()
		Expect(<-broken).NotTo(HaveOccurred())
		Expect(s.states(ctx, line.String())()).To(Equal([]string{"verifyOnly", "verifyOnly", stateEnabled}))
		remove(ctx, obj)
	})
})

package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

var _ = Describe("Owner marks", func() {
	// holder returns the owner string in the mark of a role, or "".
	holder := func(ctx context.Context, s *stage, role string) string {
		GinkgoHelper()
		list, err := s.admin().ListOwners(ctx, schema.OwnerQuery{Kind: roles.Name})
		Expect(err).NotTo(HaveOccurred())
		for _, m := range list.Owners {
			if m.ID == s.roles(ctx)[role].ID {
				return m.Owner
			}
		}
		return ""
	}
	object := func(s *stage, role string, ctx context.Context) schema.OwnedObject {
		GinkgoHelper()
		return schema.OwnedObject{Kind: roles.Name, ID: s.roles(ctx)[role].ID}
	}
	here := func(ctx context.Context) string {
		GinkgoHelper()
		var system corev1.Namespace
		Expect(kube.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system)).To(Succeed())
		return string(system.UID)
	}
	owner := func(ctx context.Context, obj *v1beta1.Role) string {
		GinkgoHelper()
		return here(ctx) + "/default/Role/" + obj.Name
	}
	always := func(o *v1beta1.Role) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways }

	It("has two KeyServers of one service not fight", func(ctx context.Context) {
		one := newStage(ctx)
		two := newStageOn(ctx, one.server)
		mine, theirs := one.role("Fought Over", []string{"HMAC Data"}), two.role("Fought Over", []string{"Authorize Key"}, always)
		apply(ctx, mine, beReady("created"))
		Expect(holder(ctx, one, "Fought Over")).To(Equal(owner(ctx, mine)))
		Expect(mine.Annotations).NotTo(HaveKey(v1beta1.AnnotationCreatePending))

		written := one.writes.Load()
		apply(ctx, theirs, beUnready(v1beta1.ReasonConflict, "is owned by "+owner(ctx, mine)+", but this object is "+owner(ctx, theirs)))
		Expect(theirs.Status.RoleID).To(BeEmpty())
		edit(ctx, theirs, func(o *v1beta1.Role) { o.Spec.Operations = []string{"Read Audit"} })
		edit(ctx, mine, func(o *v1beta1.Role) { o.Spec.Operations = []string{"HMAC Data", "Authorize Key"} })
		Eventually(readiness(ctx, mine)).Should(beCorrected())
		Consistently(readiness(ctx, theirs)).Should(beUnready(v1beta1.ReasonConflict, "is owned by"))
		Expect(one.writes.Load()-written).To(BeEquivalentTo(1), "the owner's own change")

		By("the owner letting go of it")
		edit(ctx, mine, func(o *v1beta1.Role) { o.Spec.DeletionPolicy = v1beta1.RetainExternal })
		remove(ctx, mine)
		Eventually(readiness(ctx, theirs)).Should(beCorrected())
		Expect(theirs.Status.Provenance).To(Equal(v1beta1.Adopted))
		Expect(holder(ctx, one, "Fought Over")).To(Equal(owner(ctx, theirs) + "/Adopted"))
		remove(ctx, theirs)
		Expect(holder(ctx, one, "Fought Over")).To(BeEmpty(), "whoever adopted it has let it go")
	})

	It("has two clusters not fight, and hands over by observing", func(ctx context.Context) {
		s := newStage(ctx)
		mine := s.role("Across Clusters", []string{"HMAC Data"})
		apply(ctx, mine, beReady("created"))
		first, ours := kube, owner(ctx, mine)
		within := func(c client.Client, what func()) {
			kube = c
			defer func() { kube = first }()
			what()
		}
		config, second := startControlPlane()
		startManager(config)
		var theirs *v1beta1.Role
		within(second, func() {
			beside := newStageOn(ctx, s.server)
			theirs = beside.role("Across Clusters", []string{"Authorize Key"}, always)
			apply(ctx, theirs, beUnready(v1beta1.ReasonConflict, "is owned by "+ours))
			Expect(owner(ctx, theirs)).NotTo(HavePrefix(here(ctx) + "/default/Role/" + mine.Name))
		})
		Consistently(readiness(ctx, mine)).Should(beReady("created"))

		edit(ctx, mine, func(o *v1beta1.Role) { o.Spec.ManagementPolicy = v1beta1.Observe })
		within(second, func() { Eventually(readiness(ctx, theirs)).Should(beCorrected()) })
		Eventually(readiness(ctx, mine)).Should(beUnready(v1beta1.ReasonDrifted, "managementPolicy Observe writes nothing"))

		By("asking for it back")
		edit(ctx, mine, func(o *v1beta1.Role) { o.Spec.ManagementPolicy = v1beta1.Manage })
		Eventually(readiness(ctx, mine)).Should(beUnready(v1beta1.ReasonConflict, "is owned by "))
		remove(ctx, mine)
		within(second, func() {
			Consistently(readiness(ctx, theirs)).Should(beReady(""))
			remove(ctx, theirs)
		})
	})

	It("knows again what it made and what it adopted", func(ctx context.Context) {
		s := newStage(ctx)
		made := s.role("Made", []string{"HMAC Data"}, func(o *v1beta1.Role) { o.Spec.AdoptionPolicy = v1beta1.AdoptNever })
		apply(ctx, made, beReady("created"))
		_, err := s.admin().CreateRole(ctx, schema.CreateRoleRequest{Name: "Found", Operations: []schema.HexID{s.operation(ctx, "HMAC Data")}})
		Expect(err).NotTo(HaveOccurred())
		found := s.role("Found", []string{"HMAC Data"})
		apply(ctx, found, beReady("took over"))
		Expect(found.Status.Provenance).To(Equal(v1beta1.Adopted))

		vanish(ctx, made)
		vanish(ctx, found)
		apply(ctx, made, beReady("took over"))
		apply(ctx, found, beReady("took over"))
		Expect(made.Status.Provenance).To(Equal(v1beta1.Created))
		Expect(found.Status.Provenance).To(Equal(v1beta1.Adopted))
		remove(ctx, made)
		remove(ctx, found)
		Expect(s.roles(ctx)).NotTo(HaveKey("Made"), "what a file in Git made goes with the file")
		Expect(s.roles(ctx)).To(HaveKey("Found"))
	})

	It("marks what it owned before there were marks, and takes over from what is gone", func(ctx context.Context) {
		s := newStage(ctx)
		obj := s.role("Unmarked", []string{"HMAC Data"})
		apply(ctx, obj, beReady("created"))
		me := owner(ctx, obj)
		_, err := s.admin().ReleaseOwner(ctx, schema.ReleaseOwnerRequest{OwnedObject: object(s, "Unmarked", ctx), Expect: me})
		Expect(err).To(beDone())
		Eventually(func() string { return holder(ctx, s, "Unmarked") }).Should(Equal(me))
		Consistently(readiness(ctx, obj)).WithTimeout(time.Second).Should(beReady("created"))

		By("an object of this cluster that is gone holding it")
		_, err = s.admin().SetOwner(ctx, schema.SetOwnerRequest{OwnedObject: object(s, "Unmarked", ctx), Owner: here(ctx) + "/default/Role/gone", Expect: me})
		Expect(err).To(beDone())
		Eventually(func() string { return holder(ctx, s, "Unmarked") }).Should(Equal(me))

		By("an owner string with a digest, which names no object to look for")
		shortened := here(ctx) + "/default/Role/long~0123456789abcdef"
		Expect(s.admin().SetOwner(ctx, schema.SetOwnerRequest{OwnedObject: object(s, "Unmarked", ctx), Owner: shortened, Expect: me})).
			To(HaveField("Saved", true))
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "is owned by "+shortened))

		By("the same object of another cluster holding it")
		const lost = "11111111-2222-3333-4444-555555555555"
		Expect(s.admin().SetOwner(ctx, schema.SetOwnerRequest{OwnedObject: object(s, "Unmarked", ctx), Owner: lost + "/default/Role/" + obj.Name, Expect: shortened})).
			To(HaveField("Saved", true))
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "is owned by "+lost))
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		edit(ctx, ks, func(ks *v1beta1.KeyServer) { ks.Spec.Ownership = &v1beta1.Ownership{Succeeds: []string{lost}} })
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		Expect(holder(ctx, s, "Unmarked")).To(Equal(me))
		remove(ctx, obj)
		Expect(s.roles(ctx)).NotTo(HaveKey("Unmarked"))
	})

	It("believes no annotation that says who has made something", func(ctx context.Context) {
		s := newStage(ctx)
		_, err := s.admin().CreateRole(ctx, schema.CreateRoleRequest{Name: "Somebody's", Operations: []schema.HexID{s.operation(ctx, "HMAC Data")}})
		Expect(err).NotTo(HaveOccurred())
		obj := s.role("Somebody's", []string{"HMAC Data"}, func(o *v1beta1.Role) { o.Spec.AdoptionPolicy = v1beta1.AdoptNever })
		apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "adoptionPolicy is Never"))
		claims := sha256.Sum256([]byte(byName("Somebody's")))
		edit(ctx, obj, func(o *v1beta1.Role) {
			o.Annotations = map[string]string{
				v1beta1.AnnotationCreatePending:        string(o.UID) + "//" + hex.EncodeToString(claims[:8]),
				v1beta1.AnnotationReconcileRequestedAt: "now",
			}
		})
		Eventually(func() string {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
			return obj.Status.LastHandledReconcileAt
		}).Should(Equal("now"))
		Expect(readiness(ctx, obj)()).To(beUnready(v1beta1.ReasonConflict, "adoptionPolicy is Never"))
		remove(ctx, obj)
		Expect(s.roles(ctx)).To(HaveKey("Somebody's"))
	})

	It("leaves to its new owner what it is deleted with", func(ctx context.Context) {
		s := newStage(ctx)
		obj := s.role("Passed On", []string{"HMAC Data"})
		apply(ctx, obj, beReady("created"))
		Expect(s.admin().SetOwner(ctx, schema.SetOwnerRequest{OwnedObject: object(s, "Passed On", ctx), Owner: "somebody", Expect: owner(ctx, obj)})).
			To(HaveField("Saved", true))
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "is owned by somebody"))
		remove(ctx, obj)
		Expect(s.roles(ctx)).To(HaveKey("Passed On"))
		Expect(holder(ctx, s, "Passed On")).To(Equal("somebody"))
	})
})

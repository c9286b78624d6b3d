package controllers

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// principal finds a principal by its type and exact name.
func (s *stage) principal(ctx context.Context, kind, name string) schema.Principal {
	GinkgoHelper()
	page, err := s.admin().ListPrincipals(ctx, schema.PrincipalQuery{Type: kind, Name: name})
	Expect(err).NotTo(HaveOccurred())
	for _, p := range page.Principals {
		if p.Name == name {
			return p
		}
	}
	return schema.Principal{}
}

// group creates a group with a unique name.
func (s *stage) group(ctx context.Context) schema.Principal {
	GinkgoHelper()
	made, err := s.admin().CreateGroup(ctx, schema.CreateGroupRequest{Name: fmt.Sprintf("Group %d", objects.Add(1))})
	Expect(err).NotTo(HaveOccurred())
	return *made.Principal
}

// registers registers a peer on the key server, outside of Kubernetes.
func (s *stage) registers(ctx context.Context, p peer) {
	GinkgoHelper()
	s.trusts(ctx, p)
	_, err := s.admin().AddTrustedServer(ctx, schema.AddTrustedServerRequest{TrustBlob: read(schema.ParseTrustBlob, p.blob), FriendlyName: "Registered by hand"})
	Expect(err).NotTo(HaveOccurred())
}

func byID(id schema.HexID) v1beta1.PrincipalReference {
	text := id.String()
	return v1beta1.PrincipalReference{ID: &text}
}

func byTypeAndName(kind v1beta1.PrincipalType, name string) v1beta1.PrincipalReference {
	return v1beta1.PrincipalReference{Type: &kind, Name: &name}
}

// principalTrust returns a PrincipalTrust for the peer with a system id. It is not applied yet.
func (s *stage) principalTrust(system int64, of v1beta1.PrincipalReference, change ...func(*v1beta1.PrincipalTrust)) *v1beta1.PrincipalTrust {
	obj := &v1beta1.PrincipalTrust{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("trust-%d", objects.Add(1))},
		Spec:       v1beta1.PrincipalTrustSpec{Principal: of, SystemID: &system, Flag: v1beta1.Expose},
	}
	obj.Spec.KeyServerRef.Name = s.name
	for _, c := range change {
		c(obj)
	}
	return obj
}

func of(server *v1beta1.TrustedServer) func(*v1beta1.PrincipalTrust) {
	return func(o *v1beta1.PrincipalTrust) {
		o.Spec.SystemID, o.Spec.TrustedServerRef = nil, &v1beta1.TrustedServerReference{Name: server.Name}
	}
}

var _ = Describe("PrincipalTrust", func() {
	flag := func(ctx context.Context, p peer, principal schema.HexID) func() string {
		return func() string {
			system := schema.SystemID(p.system)
			list, err := shown.admin().ListPrincipalTrusts(ctx, schema.PrincipalTrustsQuery{PrincipalID: &principal, TrustedServerSystemID: &system})
			if err != nil {
				return err.Error()
			}
			if len(list.PrincipalTrusts) == 0 {
				return ""
			}
			return *list.PrincipalTrusts[0].FlagLabel
		}
	}
	create := func(ctx context.Context, p peer, principal schema.HexID, flag string) {
		GinkgoHelper()
		_, err := shown.admin().CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{
			PrincipalID: principal, TrustedServerSystemID: schema.SystemID(p.system), Flag: flag,
		})
		Expect(err).NotTo(HaveOccurred())
	}

	Describe("refusals", func() {
		It("makes no row for a principal of a TrustedServer at another KeyServer", func(ctx context.Context) {
			server := shown.trustedServer(newPeer(ctx), func(o *v1beta1.TrustedServer) { o.Spec.KeyServerRef.Name = "another" })
			Expect(kube.Create(ctx, server)).To(Succeed())
			obj := shown.principalTrust(0, byTypeAndName("password", "admin"), of(server))
			apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, "refers to KeyServer \"another\""))
			remove(ctx, obj)
			remove(ctx, server)
		})

		It("does not overwrite a row that exists and differs, until told to", func(ctx context.Context) {
			p, group := newPeer(ctx), shown.group(ctx)
			shown.registers(ctx, p)
			create(ctx, p, group.ID, "restrict")
			obj := shown.principalTrust(p.system, byID(group.ID))
			apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "differs in flag"))
			Expect(obj.Status.Drift).To(ConsistOf(v1beta1.FieldDrift{Field: "flag", Declared: "expose", Observed: "restrict"}))
			Expect(flag(ctx, p, group.ID)()).To(Equal("restrict"))
			edit(ctx, obj, func(o *v1beta1.PrincipalTrust) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
			Eventually(readiness(ctx, obj)).Should(beCorrected())
			Expect(flag(ctx, p, group.ID)()).To(Equal("expose"))

			younger := shown.principalTrust(p.system, byTypeAndName("group", group.Name), func(o *v1beta1.PrincipalTrust) {
				o.Name, o.Spec.Flag = "z"+o.Name, v1beta1.Restrict
			})
			apply(ctx, younger, beUnready(v1beta1.ReasonConflict, "is claimed by PrincipalTrust default/"+obj.Name))
			remove(ctx, younger)
			remove(ctx, obj)
			Expect(flag(ctx, p, group.ID)()).To(Equal("expose"), "what was adopted is not deleted")
		})
	})

	It("waits for its principal", func(ctx context.Context) {
		p := newPeer(ctx)
		shown.registers(ctx, p)
		name := fmt.Sprintf("Latecomers %d", objects.Add(1))
		_, err := shown.admin().CreateGroup(ctx, schema.CreateGroupRequest{Name: name + " and more"})
		Expect(err).NotTo(HaveOccurred())
		obj := shown.principalTrust(p.system, byTypeAndName("group", name))
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, fmt.Sprintf("no principal of type group with the name %q", name)))
		_, err = shown.admin().CreateGroup(ctx, schema.CreateGroupRequest{Name: name})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		Expect(obj.Status.PrincipalID).To(Equal(shown.principal(ctx, "group", name).ID.String()))
		remove(ctx, obj)
	})

	It("waits for a peer by its system id", func(ctx context.Context) {
		p, group := newPeer(ctx), shown.group(ctx)
		obj := shown.principalTrust(p.system, byID(group.ID))
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, fmt.Sprintf("has no peer with the system id %d", p.system)))
		shown.registers(ctx, p)
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		remove(ctx, obj)
	})

	It("waits for its TrustedServer, holds it, and goes through its life", func(ctx context.Context) {
		p, group := newPeer(ctx), shown.group(ctx)
		server := shown.trustedServer(p)
		obj := shown.principalTrust(0, byTypeAndName("group", group.Name), of(server))
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, "TrustedServer default/"+server.Name+" does not exist"))
		apply(ctx, server, beUnready(v1beta1.ReasonDependencyNotReady, "does not trust"))
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDependencyNotReady, "is not registered yet"))
		shown.trusts(ctx, p)
		Eventually(readiness(ctx, server)).Should(beReady("created"))
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		Expect(flag(ctx, p, group.ID)()).To(Equal("expose"))
		Expect(obj.Status.SystemID).To(HaveValue(Equal(p.system)))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))

		By("changing the flag")
		edit(ctx, obj, func(o *v1beta1.PrincipalTrust) { o.Spec.Flag = v1beta1.Restrict })
		Eventually(flag(ctx, p, group.ID)).Should(Equal("restrict"))
		Eventually(readiness(ctx, obj)).Should(beCorrected())

		By("repairing an outside change")
		Eventually(eventsAfter(ctx, obj, func() error {
			_, err := shown.admin().UpdatePrincipalTrust(ctx, schema.UpdatePrincipalTrustRequest{ID: read(schema.ParseHexID, obj.Status.PrincipalTrustID), Flag: "expose"})
			return err
		})).WithPolling(time.Second).Should(ContainElements("DriftFound", "Updated"))
		Eventually(flag(ctx, p, group.ID)).Should(Equal("restrict"))

		By("repairing an outside deletion")
		_, err := shown.admin().DeletePrincipalTrust(ctx, schema.ByID{ID: read(schema.ParseHexID, obj.Status.PrincipalTrustID)})
		Expect(err).To(beDone())
		Eventually(flag(ctx, p, group.ID)).Should(Equal("restrict"))
		Eventually(readiness(ctx, obj)).Should(beReady(""))

		By("holding the deletion of its TrustedServer")
		Expect(kube.Delete(ctx, server)).To(Succeed())
		Eventually(readiness(ctx, server)).Should(beUnready(v1beta1.ReasonInUse, "PrincipalTrust default/"+obj.Name))
		Consistently(func() map[int64]schema.TrustedServer { return shown.peers(ctx) }).Should(HaveKey(p.system))
		remove(ctx, obj)
		Expect(flag(ctx, p, group.ID)()).To(BeEmpty())
		Eventually(gone(ctx, server)).Should(BeTrue())
		Expect(shown.peers(ctx)).NotTo(HaveKey(p.system))
	})

	It("observes without writing, and retains what it made if told to", func(ctx context.Context) {
		p, group := newPeer(ctx), shown.group(ctx)
		shown.registers(ctx, p)
		observed := shown.principalTrust(p.system, byID(group.ID), func(o *v1beta1.PrincipalTrust) { o.Spec.ManagementPolicy = v1beta1.Observe })
		apply(ctx, observed, beUnready(v1beta1.ReasonDrifted, "does not exist on the key server"))
		Expect(flag(ctx, p, group.ID)()).To(BeEmpty())
		create(ctx, p, group.ID, "expose")
		Eventually(readiness(ctx, observed)).Should(beReady("has the flag expose"))
		remove(ctx, observed)
		taken := shown.principalTrust(p.system, byID(group.ID), func(o *v1beta1.PrincipalTrust) { o.Spec.DeletionPolicy = v1beta1.RetainExternal })
		apply(ctx, taken, beReady("took over"))
		remove(ctx, taken)
		Expect(flag(ctx, p, group.ID)()).To(Equal("expose"))
	})
})

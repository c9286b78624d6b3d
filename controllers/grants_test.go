package controllers

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// labelled selects namespaces by one label.
func labelled(label, value string) v1beta1.GrantedNamespaces {
	return v1beta1.GrantedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}}
}

// grant returns a grant for the namespace default.
func grant(name string, kinds []v1beta1.GrantedKind, names []string, operations ...string) v1beta1.Grant {
	return v1beta1.Grant{
		Name: name, Namespaces: v1beta1.GrantedNamespaces{Names: []string{"default"}},
		Kinds: kinds, Names: names, Operations: operations,
	}
}

// newGrantingStage returns a stage whose KeyServer has exactly these grants.
func newGrantingStage(ctx context.Context, grants ...v1beta1.Grant) *stage {
	GinkgoHelper()
	return newStage(ctx, func(ks *v1beta1.KeyServer) { ks.Spec.Grants = grants })
}

// regrant replaces the grants of the KeyServer.
func (s *stage) regrant(ctx context.Context, grants ...v1beta1.Grant) {
	GinkgoHelper()
	edit(ctx, &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, func(ks *v1beta1.KeyServer) { ks.Spec.Grants = grants })
}

var _ = Describe("Grants", func() {
	denied := func(says string) OmegaMatcher { return beUnready(v1beta1.ReasonAccessDenied, says) }
	roleKind := []v1beta1.GrantedKind{"Role"}

	Describe("refusals", func() {
		It("allow nothing by omission: the key server is not asked anything", func(ctx context.Context) {
			s := newGrantingStage(ctx)
			Eventually(readiness(ctx, &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}})).Should(beReady(""))
			ca, role := s.trustedCA(newCA()), s.role("Anything", []string{"HMAC Data"})
			for _, obj := range []reconcile.Object{ca, role} {
				apply(ctx, obj, denied(`KeyServer "`+s.name+`" has no grant for namespace "default"; ask an administrator of the KeyServer to add one to spec.grants`))
				Expect(has(obj, v1beta1.ConditionStalled)).To(BeTrue())
				Expect(obj.GetFinalizers()).To(BeEmpty())
			}
			Expect([]int32{s.adds.Load(), s.lists.Load(), s.writes.Load()}).To(Equal([]int32{0, 0, 0}))

			By("letting go at once of what has made nothing")
			remove(ctx, ca)
			remove(ctx, role)
		})

		It("name the kind, the name and the operations that lack, and the grant that lacks them", func(ctx context.Context) {
			s := newGrantingStage(ctx,
				grant("signers", roleKind, []string{"Team *"}, "duty:key use", "List Operations"),
				grant("templates", []v1beta1.GrantedKind{"ACLTemplate", "PrincipalTrust", "TrustedServer"}, []string{"Team *", "/team/*", "group/*", "*.example"}),
			)
			p := newPeer(ctx)
			for _, tc := range []struct {
				obj  client.Object
				says string
			}{
				{s.trustedCA(newCA()), `grant "signers", the nearest, lacks the kind TrustedCA and the name "CN=`},
				{s.role("Other", nil), `grant "signers", the nearest, lacks the name "Other"`},
				{s.role("Team Root", []string{"HMAC Data", "Grant Any Operation"}), `grant "signers", the nearest, lacks the operation "Grant Any Operation" (duty administration)`},
				{s.role("Team Root", []string{"0000000000000401"}), `lacks the operation "Read Audit" (duty audit)`},
				{s.aclTemplate("Other", nil), `grant "templates", the nearest, lacks the name "Other"`},
				{s.aclTemplate("Team Keys", nil, func(o *v1beta1.ACLTemplate) { o.Spec.Directories = []string{"/"} }), `lacks the name "/"`},
				{s.aclTemplate("Team Keys", nil, func(o *v1beta1.ACLTemplate) { o.Spec.Directories = []string{"/team/a", "/team"} }), ""},
				{s.principalTrust(7, byTypeAndName("password", testserver.AdminName)), `lacks the name "password/admin"`},
				{s.trustedServer(p), `grant "templates", the nearest, lacks the name "`},
			} {
				want := denied(tc.says)
				if tc.says == "" {
					want = beReady("created")
				}
				apply(ctx, tc.obj, want)
				remove(ctx, tc.obj)
			}
			Expect(s.roles(ctx)).NotTo(HaveKey("Team Root"))
			Expect(s.adds.Load() + s.writes.Load()).To(BeZero())
		})

		It("do not add up", func(ctx context.Context) {
			s := newGrantingStage(ctx, grant("names", roleKind, []string{"*"}), grant("operations", roleKind, []string{"Team *"}, "duty:audit"))
			obj := s.role("Auditor Two", []string{"Read Audit"})
			apply(ctx, obj, denied(`grant "names", the nearest, lacks the operation "Read Audit"`))
			Expect(s.writes.Load()).To(BeZero())
			remove(ctx, obj)
		})

		It("let nothing be taken over that is there already, but let it be observed", func(ctx context.Context) {
			all := grant("all", roleKind, []string{"*"}, "duty:key use", "duty:administration")
			s := newGrantingStage(ctx, all)
			_, err := s.admin().CreateRole(ctx, schema.CreateRoleRequest{Name: "There Before", Operations: []schema.HexID{s.operation(ctx, "HMAC Data")}})
			Expect(err).NotTo(HaveOccurred())
			obj := s.role("There Before", []string{"HMAC Data"})
			apply(ctx, obj, denied(`exists already, and grant "all" of the KeyServer does not allow adoption`))
			edit(ctx, obj, func(o *v1beta1.Role) {
				o.Spec.AdoptionPolicy, o.Spec.Operations = v1beta1.AdoptAlways, []string{"HMAC Data", "List Roles"}
			})
			Eventually(readiness(ctx, obj)).Should(And(HaveField("Current", true), denied("exists already, and grant")))
			Expect(s.writes.Load()).To(BeZero())
			edit(ctx, obj, func(o *v1beta1.Role) {
				o.Spec.AdoptionPolicy, o.Spec.Operations = v1beta1.AdoptIfIdentical, []string{"HMAC Data"}
				o.Spec.ManagementPolicy = v1beta1.Observe
			})
			Eventually(readiness(ctx, obj)).Should(beReady(""))

			By("taking it over where the grant says so")
			edit(ctx, obj, func(o *v1beta1.Role) { o.Spec.ManagementPolicy = v1beta1.Manage })
			Eventually(readiness(ctx, obj)).Should(denied("exists already, and grant"))
			all.Adopt = true
			s.regrant(ctx, all)
			Eventually(readiness(ctx, obj)).Should(beReady("took over"))
			remove(ctx, obj)
		})

		It("cover what a role is called now, too", func(ctx context.Context) {
			s := newGrantingStage(ctx, grant("all", roleKind, []string{"*"}))
			obj := s.role("Of Production", nil)
			apply(ctx, obj, beReady("created"))
			s.regrant(ctx, grant("team", roleKind, []string{"Team *"}))
			Eventually(readiness(ctx, obj)).Should(denied(`lacks the name "Of Production"`))
			writes := s.writes.Load()
			name := "Team Of Production"
			edit(ctx, obj, func(o *v1beta1.Role) { o.Spec.RoleName = &name })
			Eventually(readiness(ctx, obj)).Should(And(HaveField("Current", true), denied(`lacks the name "Of Production"`)))
			Expect(s.writes.Load()).To(Equal(writes))
			s.regrant(ctx, grant("team", roleKind, []string{"Team *", "Of *"}))
			Eventually(readiness(ctx, obj)).Should(beReady("corrected"))
			remove(ctx, obj)
		})
	})

	It("keep what is there when they are taken away, and its deletion waits or lets it be", func(ctx context.Context) {
		s := newGrantingStage(ctx, grant("all", roleKind, []string{"*"}, "duty:key use"))
		held, deleted := s.role("Held", []string{"HMAC Data"}), s.role("Deleted", []string{"HMAC Data"})
		apply(ctx, held, beReady("created"))
		apply(ctx, deleted, beReady("created"))

		By("an operation that is taken away: what was made may still be deleted")
		s.regrant(ctx, grant("all", roleKind, []string{"*"}))
		Eventually(readiness(ctx, deleted)).Should(denied(`lacks the operation "HMAC Data"`))
		Expect(s.roles(ctx)).To(HaveKey("Deleted"))
		remove(ctx, deleted)
		Expect(s.roles(ctx)).NotTo(HaveKey("Deleted"))

		By("a grant that is taken away")
		s.regrant(ctx)
		Eventually(readiness(ctx, held)).Should(denied("has no grant for namespace"))
		Expect(kube.Delete(ctx, held)).To(Succeed())
		Eventually(readiness(ctx, held)).Should(denied("deletion waits"))
		Expect(s.roles(ctx)).To(HaveKey("Held"))
		annotate(ctx, held, v1beta1.AnnotationAbandon, "true")
		Eventually(gone(ctx, held)).Should(BeTrue())
		Expect(s.roles(ctx)).To(HaveKey("Held"))
	})

	It("keep what they do not cover from standing in anybody's way", func(ctx context.Context) {
		s := newGrantingStage(ctx, grant("signers", roleKind, []string{"*"}, "duty:key use"))
		older := s.role("Wanted By Two", []string{"Grant Any Operation"})
		apply(ctx, older, denied("lacks the operation"))
		younger := s.role("Wanted By Two", []string{"HMAC Data"})
		apply(ctx, younger, beReady("created"))
		remove(ctx, younger)
		Expect(s.roles(ctx)).NotTo(HaveKey("Wanted By Two"), "nobody inherits it who may not have it")
		remove(ctx, older)
	})

	It("are not got around by observing first what is to be had then", func(ctx context.Context) {
		kinds := []v1beta1.GrantedKind{"TrustedCA"}
		s := newGrantingStage(ctx, grant("all", kinds, []string{"*"}))
		own, other := newCA(), newCA()
		_, err := s.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: other.der})
		Expect(err).NotTo(HaveOccurred())
		obj := s.trustedCA(own)
		apply(ctx, obj, beReady("created"))
		edit(ctx, obj, func(o *v1beta1.TrustedCA) {
			o.Spec.ManagementPolicy, o.Spec.Certificate.Inline = v1beta1.Observe, &other.pem
		})
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.ManagementPolicy = v1beta1.Manage })
		Eventually(readiness(ctx, obj)).Should(denied("exists already, and grant"))
		remove(ctx, obj)
		Expect(s.trusted(ctx)).To(HaveKey(other.fingerprint))
	})

	It("name a certificate by its subject or by its fingerprint", func(ctx context.Context) {
		ca := newCA()
		s := newGrantingStage(ctx, grant("one", []v1beta1.GrantedKind{"TrustedCA"}, []string{"sha256:" + ca.fingerprint}))
		obj := s.trustedCA(ca)
		apply(ctx, obj, beReady("created"))
		other := s.trustedCA(newCA())
		apply(ctx, other, denied(`lacks the name "CN=`))
		Expect(s.adds.Load()).To(BeEquivalentTo(1))
		remove(ctx, other)
		remove(ctx, obj)
	})
})

package controllers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// A user with write access to some objects tries to get access to other users' keys, or to block other users.
var _ = Describe("Tenants", func() {
	people := []v1beta1.GrantedKind{"Key", "Principal"}

	It("enter no group that no grant covers", func(ctx context.Context) {
		s := newGrantingStage(ctx, grant("all", people, []string{"*"}, "duty:key use"))
		finance := s.principalOf(ofGroup(fresh("finance")))
		apply(ctx, finance, beReady("created"))
		s.regrant(ctx, grant("team", people, []string{"xauth/*", "issuer/*"}, "duty:key use"))
		Eventually(readiness(ctx, finance)).Should(beUnready(v1beta1.ReasonAccessDenied, "lacks the name"))

		spy := s.principalOf(ofAccount(fresh("spy")), inGroup(finance.Name))
		apply(ctx, spy, beUnready(v1beta1.ReasonAccessDenied, `lacks the name "group/`+*finance.Spec.PrincipalName+`"`))
		Expect(s.held(ctx, xauthType, subjectOf(spy.Spec.ServiceAccount.Name))).To(BeNil())
	})

	It("enter no group that they only look at", func(ctx context.Context) {
		hand := fresh("hand")
		_, err := shown.admin().CreateGroup(ctx, schema.CreateGroupRequest{Name: hand})
		Expect(err).NotTo(HaveOccurred())
		seen := shown.principalOf(ofGroup(hand), func(o *v1beta1.Principal) { o.Spec.ManagementPolicy = v1beta1.Observe })
		apply(ctx, seen, beReady(""))
		member := shown.principalOf(ofAccount(fresh("joins")), inGroup(seen.Name))
		apply(ctx, member, beUnready(v1beta1.ReasonDependencyNotReady, "has neither created nor adopted its group"))
		Expect(shown.held(ctx, xauthType, subjectOf(member.Spec.ServiceAccount.Name))).To(BeNil())
	})

	It("hear of what their group is given", func(ctx context.Context) {
		s := newGrantingStage(ctx, grant("team", people, []string{"*"}, "duty:key use"))
		group := s.principalOf(ofGroup(fresh("given")))
		apply(ctx, group, beReady("created"))
		member := s.principalOf(ofAccount(fresh("member")), inGroup(group.Name))
		apply(ctx, member, beReady("created"))
		annotate(ctx, group, v1beta1.AnnotationPaused, "true") // otherwise the manager would correct its roles
		Eventually(readiness(ctx, group)).Should(HaveField("Reason", v1beta1.ReasonPaused))
		_, err := s.admin().UpdatePrincipalRoles(ctx, schema.UpdatePrincipalRolesRequest{
			ID: read(schema.ParseHexID, group.Status.PrincipalID), RoleIDs: []schema.HexID{s.roles(ctx)["Administrator"].ID},
		})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, member)).Should(beUnready(v1beta1.ReasonAccessDenied, "operation"))
		annotate(ctx, group, v1beta1.AnnotationPaused, "")
		Eventually(readiness(ctx, member)).Should(beReady(""))
	})

	It("hold nothing by an object that no grant covers", func(ctx context.Context) {
		whose := shown.principalOf(ofAccount(fresh("leaving")))
		apply(ctx, whose, beReady("created"))
		key := shown.key(func(o *v1beta1.Key) { o.Namespace = newNamespace(ctx, nil) },
			withMembers(v1beta1.ACLTemplateMember{Principal: "xauth/" + subjectOf(whose.Spec.ServiceAccount.Name), Rights: []v1beta1.Right{"READ"}}))
		apply(ctx, key, beUnready(v1beta1.ReasonAccessDenied, "has no grant for namespace"))
		remove(ctx, whose)
		Expect(shown.held(ctx, xauthType, subjectOf(whose.Spec.ServiceAccount.Name))).To(BeNil())
	})

	It("are shut out although what they own keeps them", func(ctx context.Context) {
		owner := shown.principalOf(ofLDAP(fresh("owner")))
		apply(ctx, owner, beReady("created"))
		line := shown.mint(ctx)
		self, err := shown.admin().GetCurrentSession(ctx)
		Expect(err).NotTo(HaveOccurred())
		held := shown.held(ctx, ldapType, owner.Spec.LDAP.Name)
		_, err = shown.admin().GrantACL(ctx, schema.ACLChangeRequest{TTag: line, SystemID: held.SystemID, PrincipalID: held.PrincipalID, Rights: schema.RightNamed("OWNER")})
		Expect(err).NotTo(HaveOccurred())
		_, err = shown.admin().RevokeACL(ctx, schema.ACLRevokeRequest{TTag: line, SystemID: self.Principal.SystemID, PrincipalID: self.Principal.PrincipalID})
		Expect(err).NotTo(HaveOccurred())

		Expect(kube.Delete(ctx, owner)).To(Succeed())
		Eventually(readiness(ctx, owner)).Should(beUnready(v1beta1.ReasonInUse, "until then it is disabled and cannot log in"))
		Expect(readiness(ctx, owner)()).To(HaveField("Message", And(HavePrefix("deletion waits: "), ContainSubstring("?heir=ID"), ContainSubstring(v1beta1.AnnotationAbandon))))
		Expect(shown.held(ctx, ldapType, owner.Spec.LDAP.Name).Disabled).To(BeTrue())
		annotate(ctx, owner, v1beta1.AnnotationAbandon, "true")
		Eventually(gone(ctx, owner)).Should(BeTrue())
	})

	It("keep no other namespace from a certificate that is published", func(ctx context.Context) {
		old, next, to, other := newCA(), newCA(), fresh("trusted"), newNamespace(ctx, nil)
		obj := shown.trustedCA(old, publishing(to, &v1beta1.GrantedNamespaces{Names: []string{"default", other}}), func(o *v1beta1.TrustedCA) {
			o.Spec.Rotation.Overlap = &metav1.Duration{Duration: 2 * time.Second}
		})
		apply(ctx, obj, beReady("created"))
		edit(ctx, configMap(to, "", ""), func(m *corev1.ConfigMap) { m.Annotations = nil })
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Certificate.Inline = &next.pem })
		Eventually(published(ctx, other, to)).Should(Equal(next.pem + old.pem))
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "ConfigMap default/"+to))

		By("trusting the old one for as long as somebody finds no other")
		Consistently(func() map[string]string { return shown.trusted(ctx) }, 4*time.Second).Should(And(HaveKey(old.fingerprint), HaveKey(next.fingerprint)))
		Expect(kube.Delete(ctx, configMap(to, "", ""))).To(Succeed())
		Eventually(published(ctx, "default", to)).Should(Equal(next.pem))
		Eventually(func() map[string]string { return shown.trusted(ctx) }).ShouldNot(HaveKey(old.fingerprint))
	})

	It("freeze no ConfigMap that the manager publishes", func(ctx context.Context) {
		ca, to, yes := newCA(), fresh("frozen"), true
		obj := shown.trustedCA(ca, publishing(to, nil))
		apply(ctx, obj, beReady("created"))
		edit(ctx, configMap(to, "", ""), func(m *corev1.ConfigMap) { m.Data["ca.crt"], m.Immutable = "another", &yes })
		Eventually(published(ctx, "default", to)).Should(Equal(ca.pem))
		Eventually(readiness(ctx, obj)).Should(beReady(""))
	})
})

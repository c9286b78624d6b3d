package controllers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

var _ = Describe("KeyServer", func() {
	keyServer := func(s *stage) *v1beta1.KeyServer {
		return &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	}

	It("is needed: an object without one waits for it", func(ctx context.Context) {
		obj := shown.trustedCA(newCA(), func(o *v1beta1.TrustedCA) { o.Spec.KeyServerRef.Name = "nowhere" })
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, `KeyServer "nowhere" does not exist`))
		remove(ctx, obj)
	})

	It("serves only the namespaces that it has a grant for", func(ctx context.Context) {
		Expect(kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}})).To(Succeed())
		ca := newCA()
		stranger := shown.trustedCA(ca, func(o *v1beta1.TrustedCA) { o.Namespace = "stranger" })
		apply(ctx, stranger, beUnready(v1beta1.ReasonAccessDenied, `KeyServer "`+shown.name+`" has no grant for namespace "stranger"`))

		By("not letting who is not allowed stand in anybody's way")
		obj := shown.trustedCA(ca)
		apply(ctx, obj, beReady(""))
		remove(ctx, obj)

		By("letting in whom the selector picks")
		edit(ctx, keyServer(shown), func(ks *v1beta1.KeyServer) {
			ks.Spec.Grants = append(ks.Spec.Grants, v1beta1.GrantAll("strangers", labelled("kubernetes.io/metadata.name", "stranger")))
		})
		Eventually(readiness(ctx, stranger)).Should(beReady(""))
		remove(ctx, stranger)
	})

	It("follows the labels of namespaces", func(ctx context.Context) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "admitted"}}
		Expect(kube.Create(ctx, namespace)).To(Succeed())
		s := newStage(ctx, func(ks *v1beta1.KeyServer) {
			ks.Spec.Grants = append(ks.Spec.Grants, v1beta1.GrantAll("trusted", labelled("trust", "yes")))
		})
		ca := newCA()
		obj := s.trustedCA(ca, func(o *v1beta1.TrustedCA) { o.Namespace = "admitted" })
		apply(ctx, obj, beUnready(v1beta1.ReasonAccessDenied, `has no grant for namespace "admitted"`))

		edit(ctx, namespace, func(n *corev1.Namespace) { n.Labels["trust"] = "yes" })
		Eventually(readiness(ctx, obj)).Should(beReady("created"))

		By("an object that is no longer let in keeps what it made, and cannot have it deleted")
		younger := s.trustedCA(ca)
		apply(ctx, younger, beUnready(v1beta1.ReasonConflict, "is claimed by TrustedCA admitted/"+obj.Name))
		edit(ctx, namespace, func(n *corev1.Namespace) { delete(n.Labels, "trust") })
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonAccessDenied, "has no grant for namespace"))
		Eventually(readiness(ctx, younger)).Should(beReady("took over"), "who is not let in stands in nobody's way")
		Expect(kube.Delete(ctx, obj)).To(Succeed())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonAccessDenied, "deletion waits"))
		Expect(s.trusted(ctx)).To(HaveKey(ca.fingerprint))
		annotate(ctx, obj, v1beta1.AnnotationAbandon, "true")
		Eventually(gone(ctx, obj)).Should(BeTrue())
		remove(ctx, younger)
	})

	It("says what is wrong with its credentials, and takes a rotated Secret at once", func(ctx context.Context) {
		s := newStage(ctx, func(ks *v1beta1.KeyServer) {
			ks.Spec.Credentials.Administrator.SecretRef.PasswordKey = "secret"
		})
		ks := keyServer(s)
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonDependencyNotReady, `has no key "secret"`))
		obj := s.trustedCA(newCA())
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, `KeyServer "`+s.name+`" is not ready`))

		s.secret(ctx, s.name, testserver.AdminName, "wrong")
		edit(ctx, ks, func(o *v1beta1.KeyServer) { o.Spec.Credentials.Administrator.SecretRef.PasswordKey = "password" })
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonAccessDenied, `Secret kube-system/`+s.name+` (keys "username" and "password"): INVALID_CREDENTIALS`))
		Expect(readiness(ctx, ks)().Message).NotTo(ContainSubstring("wrong"))

		s.secret(ctx, s.name, testserver.AdminName, testserver.AdminPassword)
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		Expect(ks.Status.Version).NotTo(BeEmpty())
		Expect(meta.IsStatusConditionTrue(ks.Status.Conditions, v1beta1.ConditionChangeFeed)).To(BeTrue())
	})

	It("tries a password that was changed rarely, whatever the number of objects, and names its Secret", func(ctx context.Context) {
		s := newStage(ctx, func(ks *v1beta1.KeyServer) {
			ks.Spec.Credentials.Administrator.SecretRef.UsernameKey = "user" // a key that does not exist yet
		})
		// The change feed does not notice the end of the session, for example because a proxy holds the connection.
		s.onChanges(func(ctx context.Context, real connection.API, in schema.ChangesQuery) (schema.ChangePage, error) {
			if in.Wait != nil && *in.Wait > 0 {
				<-ctx.Done()
				return schema.ChangePage{}, ctx.Err()
			}
			return real.ListChanges(ctx, in)
		})
		admin := s.admin()
		manager, err := admin.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{
			Name: "manager", Password: "the first password", RoleIDs: []schema.HexID{s.roles(ctx)["Administrator"].ID},
		})
		Expect(err).NotTo(HaveOccurred())
		s.secret(ctx, s.name, "manager", "the first password")
		ks := keyServer(s)
		edit(ctx, ks, func(o *v1beta1.KeyServer) { o.Spec.Credentials.Administrator.SecretRef.UsernameKey = "username" })
		var roles []*v1beta1.Role
		for i := range 40 {
			roles = append(roles, s.role(fmt.Sprintf("Of Many %d", i), []string{"HMAC Data"}))
			Expect(kube.Create(ctx, roles[i])).To(Succeed())
		}
		for _, obj := range roles {
			Eventually(readiness(ctx, obj)).Should(beReady(""))
		}

		By("not logging in for each of them")
		_, err = admin.SetPassword(ctx, schema.SetPasswordRequest{ID: manager.Principal.ID, Password: "the second password"})
		Expect(err).NotTo(HaveOccurred())
		for _, obj := range roles { // each object then has differences to correct
			edit(ctx, obj, func(o *v1beta1.Role) { o.Spec.Operations = []string{"List Roles"} })
		}
		says := beUnready(v1beta1.ReasonAccessDenied, "the key server rejects the credentials of Secret kube-system/"+s.name+` (keys "username" and "password"): INVALID_CREDENTIALS`)
		Eventually(readiness(ctx, ks)).Should(says)
		for _, obj := range roles {
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDependencyNotReady, "Secret kube-system/"+s.name))
		}
		refused := "refused"
		logins, err := admin.ListAuditEntries(ctx, schema.AuditQuery{Operation: "login", Outcome: &refused})
		Expect(err).NotTo(HaveOccurred())
		Expect(logins.Entries).NotTo(BeEmpty())
		Expect(len(logins.Entries)).To(BeNumerically("<", len(roles)/2), "each try is a failed login in the trail")

		By("going on at once when the Secret has the new one")
		s.secret(ctx, s.name, "manager", "the second password")
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		for _, obj := range roles {
			Eventually(readiness(ctx, obj)).Should(beReady(""))
		}
	})

	It("manages trust as the security officer where duties are split", func(ctx context.Context) {
		s := newStageOn(ctx, testserver.Start(GinkgoTB(), func(c *server.Config) { c.Deployment = "split" }))
		ca := s.trustedCA(newCA())
		apply(ctx, ca, beUnready(v1beta1.ReasonAccessDenied, "ACCESS_DENIED"))
		Expect(has(ca, v1beta1.ConditionStalled)).To(BeTrue())

		s.officer(ctx)
		Eventually(readiness(ctx, ca)).Should(beReady("created"))
		apply(ctx, s.role("Of The Administrator", []string{"HMAC Data"}), beReady("created"))
	})

	It("manages peers, principal trusts and templates as the security officer where duties are split", func(ctx context.Context) {
		s := newStageOn(ctx, testserver.Start(GinkgoTB(), func(c *server.Config) { c.Deployment = "split" }))
		p := newPeer(ctx)
		ca, peer := s.trustedCA(p.ca), s.trustedServer(p)
		trust := s.principalTrust(0, byTypeAndName("password", testserver.AdminName), of(peer))
		template := s.aclTemplate("Of The Officer", members(member("password/"+testserver.AdminName, "OWNER")))
		for _, obj := range []client.Object{ca, template} {
			apply(ctx, obj, beUnready(v1beta1.ReasonAccessDenied, "ACCESS_DENIED"))
		}
		for _, obj := range []client.Object{peer, trust} { // they only observe
			apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, ""))
		}
		s.officer(ctx)
		for _, obj := range []client.Object{ca, peer, trust, template} {
			Eventually(readiness(ctx, obj)).Should(beReady("created"))
		}
		for _, obj := range []client.Object{trust, peer, ca, template} {
			remove(ctx, obj)
		}
	})

	It("serves the samples as they are", func(ctx context.Context) {
		s := newStage(ctx, func(ks *v1beta1.KeyServer) { ks.Name = "default" })
		samples := applySamples(ctx, filepath.Join("..", "config", "samples"))
		Expect(samples).NotTo(BeEmpty())
		for _, obj := range samples {
			Eventually(readiness(ctx, obj)).Should(beReady("created"))
		}
		for _, obj := range samples {
			remove(ctx, obj)
		}
		Expect(s.trusted(ctx)).To(BeEmpty())
	})

	It("federates by the samples as they are", func(ctx context.Context) {
		samples := applySamples(ctx, filepath.Join("..", "config", "samples", "federation"))
		Expect(samples).To(HaveLen(18))
		for _, obj := range samples {
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDependencyNotReady, ""))
		}
		var servers []*stage
		for _, name := range []string{"east", "west", "north"} {
			s, _ := newPeeringStage(ctx, func(ks *v1beta1.KeyServer) { ks.Name = name })
			servers = append(servers, s)
		}
		for _, obj := range samples {
			Eventually(readiness(ctx, obj)).Should(beReady("created"))
		}
		for _, s := range servers {
			Expect(s.peers(ctx)).To(HaveLen(2))
			Expect(s.trusted(ctx)).To(HaveLen(2))
		}
		// All are deleted together, as with a namespace: each waits for the objects that need it.
		for _, obj := range samples {
			Expect(kube.Delete(ctx, obj)).To(Succeed())
		}
		for _, obj := range samples {
			Eventually(gone(ctx, obj)).Should(BeTrue())
		}
		for _, s := range servers {
			Expect(s.peers(ctx)).To(BeEmpty())
			Expect(s.trusted(ctx)).To(BeEmpty())
		}
	})

	It("brakes everything that uses it while it is paused", func(ctx context.Context) {
		s := newStage(ctx)
		ca := newCA()
		obj := s.trustedCA(ca)
		apply(ctx, obj, beReady(""))
		ks := keyServer(s)
		annotate(ctx, ks, v1beta1.AnnotationPaused, "true")
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDependencyNotReady, "paused by the annotation"))
		_, err := s.admin().RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: read(schema.ParseBase64ID, obj.Status.CertificateID)})
		Expect(err).NotTo(HaveOccurred())
		Consistently(func() map[string]string { return s.trusted(ctx) }).ShouldNot(HaveKey(ca.fingerprint))
		annotate(ctx, ks, v1beta1.AnnotationPaused, "")
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
	})

	It("stays while objects refer to it", func(ctx context.Context) {
		s := newStage(ctx)
		obj := s.trustedCA(newCA())
		apply(ctx, obj, beReady(""))
		ks := keyServer(s)
		Expect(kube.Delete(ctx, ks)).To(Succeed())
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonInUse, "TrustedCA default/"+obj.Name))
		Expect(readiness(ctx, obj)()).To(beReady(""))
		late := newCA()
		newcomer := s.trustedCA(late)
		apply(ctx, newcomer, beUnready(v1beta1.ReasonDependencyNotReady, "is being deleted; no new external objects are created"))
		Expect(s.trusted(ctx)).NotTo(HaveKey(late.fingerprint))
		remove(ctx, newcomer)
		remove(ctx, obj)
		Eventually(gone(ctx, ks)).Should(BeTrue())
		Expect(s.trusted(ctx)).NotTo(HaveKey(obj.Status.Fingerprint))
	})

	It("goes away and comes back: objects say so, deletions wait, nothing needs help", func(ctx context.Context) {
		s := newStage(ctx)
		kept, deleted, abandoned := newCA(), newCA(), newCA()
		keep, del, aband := s.trustedCA(kept), s.trustedCA(deleted), s.trustedCA(abandoned)
		for _, obj := range []*v1beta1.TrustedCA{keep, del, aband} {
			apply(ctx, obj, beReady(""))
		}
		ks := keyServer(s)

		s.server.Stop(GinkgoTB())
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonKeyServerUnavailable, ""))
		Eventually(readiness(ctx, keep)).Should(beUnready(v1beta1.ReasonKeyServerUnavailable, "does not respond"))

		By("sending nothing through the shut gate")
		adds, lists := s.adds.Load(), s.lists.Load()
		late := s.trustedCA(newCA())
		apply(ctx, late, beUnready(v1beta1.ReasonKeyServerUnavailable, "does not respond"))
		Expect([]int32{s.adds.Load(), s.lists.Load()}).To(Equal([]int32{adds, lists}))

		By("holding deletions, with a way out")
		Expect(kube.Delete(ctx, del)).To(Succeed())
		Expect(kube.Delete(ctx, aband)).To(Succeed())
		Eventually(readiness(ctx, del)).Should(beUnready(v1beta1.ReasonKeyServerUnavailable, "deletion waits"))
		Eventually(eventsAbout(ctx, del)).Should(ContainElement("DeletionHeld"))
		annotate(ctx, aband, v1beta1.AnnotationAbandon, "true")
		Eventually(gone(ctx, aband)).Should(BeTrue())
		Consistently(gone(ctx, del), "300ms").Should(BeFalse())

		By("going on by itself")
		s.server.Restart(GinkgoTB())
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		Eventually(readiness(ctx, keep)).Should(beReady(""))
		Eventually(readiness(ctx, late)).Should(beReady(""))
		Eventually(gone(ctx, del)).Should(BeTrue())
		trusted := s.trusted(ctx)
		Expect(trusted).To(HaveKey(kept.fingerprint))
		Expect(trusted).To(HaveKey(abandoned.fingerprint), "abandon leaves the external object")
		Expect(trusted).NotTo(HaveKey(deleted.fingerprint))
	})
})

// officer sets the built-in security officer as the login that manages trust.
func (s *stage) officer(ctx context.Context) {
	GinkgoHelper()
	s.secret(ctx, s.name+"-officer", testserver.OfficerName, testserver.AdminPassword)
	edit(ctx, &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, func(ks *v1beta1.KeyServer) {
		ks.Spec.Credentials.SecurityOfficer = &v1beta1.PasswordCredential{
			SecretRef: v1beta1.CredentialSecretReference{Namespace: "kube-system", Name: s.name + "-officer"},
		}
	})
}

// applySamples applies the manifests of a directory, and returns the applied objects of this API.
func applySamples(ctx context.Context, directory string) []client.Object {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var samples []client.Object
	for _, f := range files {
		content, err := os.ReadFile(f)
		Expect(err).NotTo(HaveOccurred())
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			u := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(document), u)).To(Succeed())
			if u.GetKind() == "Kustomization" {
				continue
			}
			Expect(kube.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl"))).To(Succeed())
			if u.GroupVersionKind().Group != v1beta1.GroupVersion.Group {
				continue
			}
			typed, err := controlplane.Scheme().New(u.GroupVersionKind())
			Expect(err).NotTo(HaveOccurred())
			obj, ok := typed.(client.Object)
			Expect(ok).To(BeTrue())
			obj.SetNamespace(u.GetNamespace())
			obj.SetName(u.GetName())
			samples = append(samples, obj)
		}
	}
	return samples
}

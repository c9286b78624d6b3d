package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// newPeeringStage starts a key server that can be a peer.
func newPeeringStage(ctx context.Context, change ...func(*v1beta1.KeyServer)) (*stage, int64) {
	GinkgoHelper()
	system := 100 + systems.Add(1)
	s := newStageOn(ctx, testserver.Start(GinkgoTB(), func(c *server.Config) {
		c.SystemID, c.ServerName, c.ExternalListen = uint32(system), fmt.Sprintf("192.0.2.%d", system), "127.0.0.1:0"
	}), change...)
	return s, system
}

// federates returns the objects on s that declare other as a peer.
func (s *stage) federates(other *stage) (*v1beta1.TrustedCA, *v1beta1.TrustedServer) {
	ref := &v1beta1.PeerReference{Name: other.name}
	ca := s.trustedCA(testCA{}, func(o *v1beta1.TrustedCA) {
		o.Spec.Certificate = v1beta1.CertificateSource{PeerRef: ref}
		o.Spec.Rotation.Overlap = &metav1.Duration{}
	})
	peer := s.trustedServer(peer{}, func(o *v1beta1.TrustedServer) {
		o.Spec.TrustBlob, o.Spec.FriendlyName = v1beta1.TrustBlobSource{PeerRef: ref}, "Peer "+other.name
	})
	return ca, peer
}

var _ = Describe("peerRef", func() {
	Describe("refusals", func() {
		It("names what keeps the peer from being asked", func(ctx context.Context) {
			nobody := &stage{name: "nobody"}
			ca, peer := shown.federates(nobody)
			apply(ctx, ca, beUnready(v1beta1.ReasonDependencyNotReady, `peerRef: KeyServer "nobody" does not exist`))
			apply(ctx, peer, beUnready(v1beta1.ReasonDependencyNotReady, `peerRef: KeyServer "nobody" does not exist`))
			remove(ctx, ca)
			remove(ctx, peer)

			By("a peer that serves another namespace")
			elsewhere, _ := newPeeringStage(ctx, func(ks *v1beta1.KeyServer) {
				ks.Spec.Grants[0].Namespaces.Names = []string{"kube-system"}
			})
			ca, peer = shown.federates(elsewhere)
			apply(ctx, ca, beUnready(v1beta1.ReasonAccessDenied, `KeyServer "`+elsewhere.name+`" has no grant for namespace "default"`))
			apply(ctx, peer, beUnready(v1beta1.ReasonAccessDenied, `KeyServer "`+elsewhere.name+`" has no grant for namespace "default"`))
			remove(ctx, ca)
			remove(ctx, peer)
		})

		It("says that a peer cannot be reached by others", func(ctx context.Context) {
			hidden := newStage(ctx)
			ca, peer := shown.federates(hidden)
			apply(ctx, peer, beUnready(v1beta1.ReasonDependencyNotReady, "has no trust blob: it has no external listener"))
			remove(ctx, peer)
			apply(ctx, ca, beReady("created")) // the CA needs no external listener
			remove(ctx, ca)
		})

		It("does not become another peer", func(ctx context.Context) {
			one, _ := newPeeringStage(ctx)
			two, system := newPeeringStage(ctx)
			ca, peer := shown.federates(one)
			apply(ctx, ca, beReady("created"))
			apply(ctx, peer, beReady("created"))
			edit(ctx, peer, func(o *v1beta1.TrustedServer) { o.Spec.TrustBlob.PeerRef.Name = two.name })
			Eventually(readiness(ctx, peer)).Should(beUnready(v1beta1.ReasonInvalidSpec, "for the other key server, delete this object and create it again"))
			Expect(shown.peers(ctx)).NotTo(HaveKey(system))
			remove(ctx, peer)
			remove(ctx, ca)
		})
	})

	It("federates two key servers with two objects on each side, in any order", func(ctx context.Context) {
		a, systemA := newPeeringStage(ctx)
		b, systemB := newPeeringStage(ctx)
		caOfB, peerB := a.federates(b)
		caOfA, peerA := b.federates(a)
		for _, obj := range []client.Object{peerB, peerA, caOfB, caOfA} {
			Expect(kube.Create(ctx, obj)).To(Succeed())
		}
		for _, obj := range []client.Object{peerB, peerA, caOfB, caOfA} {
			Eventually(readiness(ctx, obj)).Should(beReady("created"))
		}
		Expect(a.peers(ctx)).To(HaveKey(systemB))
		Expect(b.peers(ctx)).To(HaveKey(systemA))
		Expect(peerB.Status.IssuerFingerprint).To(Equal(caOfB.Status.Fingerprint))

		By("keeping what is registered while the peer is down")
		b.server.Stop(GinkgoTB())
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonKeyServerUnavailable, ""))
		annotate(ctx, peerB, v1beta1.AnnotationReconcileRequestedAt, "while down")
		Eventually(func() string { _ = readiness(ctx, peerB)(); return peerB.Status.LastHandledReconcileAt }).Should(Equal("while down"))
		Expect(readiness(ctx, peerB)()).To(beReady(""))
		Expect(readiness(ctx, caOfB)()).To(beReady(""))

		By("following it to another name, with another certificate, under the same principal trusts")
		admin := a.principal(ctx, "password", testserver.AdminName)
		made, err := a.admin().CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{
			PrincipalID: admin.ID, TrustedServerSystemID: schema.SystemID(systemB), Flag: "expose",
		})
		Expect(err).NotTo(HaveOccurred())
		was := a.peers(ctx)[systemB]
		b.server.Restart(GinkgoTB(), func(c *server.Config) { c.ServerName = "192.0.2.251" })
		Eventually(func() string { return deref(a.peers(ctx)[systemB].ServerName) }).Should(Equal("192.0.2.251"))
		Eventually(func() string { _ = readiness(ctx, peerB)(); return peerB.Status.ServerName }).Should(Equal("192.0.2.251"))
		Expect(readiness(ctx, peerB)()).To(beReady(""))
		Expect(a.peers(ctx)[systemB].Port).NotTo(Equal(was.Port), "the external listener has another free port")
		Expect(a.peers(ctx)[systemB].TransportPrincipalID).To(Equal(was.TransportPrincipalID))
		Eventually(eventsAbout(ctx, peerB)).Should(ContainElement("Updated"))
		Expect(eventsAbout(ctx, peerB)()).NotTo(ContainElements("DriftFound", "Removing"), "nobody changed anything outside, and nothing was taken away")
		trusts, err := a.admin().ListPrincipalTrusts(ctx, schema.PrincipalTrustsQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(trusts.PrincipalTrusts).To(ContainElement(HaveField("ID", made.PrincipalTrust.ID)))

		By("correcting who registers it otherwise")
		_, err = a.admin().RemoveTrustedServer(ctx, schema.BySystemID{SystemID: schema.SystemID(systemB)})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return deref(a.peers(ctx)[systemB].ServerName) }).Should(Equal("192.0.2.251"))
		Eventually(eventsAbout(ctx, peerB)).Should(ContainElement("DriftFound"))

		for _, obj := range []client.Object{peerB, peerA, caOfB, caOfA} {
			remove(ctx, obj)
		}
		Expect(a.peers(ctx)).To(BeEmpty())
		Expect(a.trusted(ctx)).To(BeEmpty())
	})

	It("follows a peer that was set up anew, its new CA first", func(ctx context.Context) {
		a, _ := newPeeringStage(ctx)
		b, system := newPeeringStage(ctx)
		ca, peer := a.federates(b)
		apply(ctx, ca, beReady("created"))
		apply(ctx, peer, beReady("created"))
		old := ca.Status.Fingerprint

		b.server.Stop(GinkgoTB())
		b.server.Restart(GinkgoTB(), func(c *server.Config) { c.DataDir += "-anew" })
		bundle := string(b.server.CA(GinkgoTB()))
		edit(ctx, &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: b.name}}, func(ks *v1beta1.KeyServer) { ks.Spec.CABundle.Inline = &bundle })

		Eventually(func() string { _ = readiness(ctx, peer)(); return peer.Status.IssuerFingerprint }).ShouldNot(Or(BeEmpty(), Equal(old)))
		Eventually(readiness(ctx, peer)).Should(beReady(""))
		Eventually(readiness(ctx, ca)).Should(beReady(""))
		Expect(peer.Status.IssuerFingerprint).To(Equal(ca.Status.Fingerprint))
		Eventually(eventsAbout(ctx, peer)).Should(ContainElement("Updated"))
		Expect(a.removedPeers(ctx)).To(BeZero())
		Expect(fingerprintOf(*a.peers(ctx)[system].Certificate)).To(Equal(peer.Status.Fingerprint))
		Eventually(func() map[string]string { return a.trusted(ctx) }).ShouldNot(HaveKey(old), "the overlap of the superseded CA has passed")
		remove(ctx, peer)
		remove(ctx, ca)
	})
})

// removedPeers returns how often a peer was removed.
func (s *stage) removedPeers(ctx context.Context) int {
	GinkgoHelper()
	page, err := s.admin().ListAuditEntries(ctx, schema.AuditQuery{Operation: "removeTrustedServer"})
	Expect(err).NotTo(HaveOccurred())
	return len(page.Entries)
}

var _ = Describe("a followed peer", func() {
	It("stays shut out where an officer has shut it out", func(ctx context.Context) {
		a, _ := newPeeringStage(ctx)
		b, system := newPeeringStage(ctx)
		ca, peer := a.federates(b)
		apply(ctx, ca, beReady("created"))
		apply(ctx, peer, beReady("created"))
		was, disabled := a.peers(ctx)[system], true
		transport := schema.HexID(*was.TransportPrincipalID)
		_, err := a.admin().UpdatePrincipalFlags(ctx, schema.UpdatePrincipalFlagsRequest{ID: transport, Disabled: &disabled})
		Expect(err).NotTo(HaveOccurred())
		role := a.roles(ctx)["Exchanger"].ID
		_, err = a.admin().UpdatePrincipalRoles(ctx, schema.UpdatePrincipalRolesRequest{ID: transport, RoleIDs: []schema.HexID{role}})
		Expect(err).NotTo(HaveOccurred())

		b.server.Stop(GinkgoTB())
		b.server.Restart(GinkgoTB(), func(c *server.Config) { c.ServerName = "192.0.2.252" })
		Eventually(func() string { return deref(a.peers(ctx)[system].ServerName) }).Should(Equal("192.0.2.252"))
		Eventually(readiness(ctx, peer)).Should(beReady(""))
		is := a.peers(ctx)[system]
		Expect(is.Port).NotTo(Equal(was.Port), "the external listener has another free port")
		Expect(is.TransportPrincipalID).To(Equal(was.TransportPrincipalID))
		Expect(is.RoleIDs).To(Equal([]schema.HexID{role}))
		principal, err := a.admin().GetPrincipal(ctx, schema.ByID{ID: transport})
		Expect(err).NotTo(HaveOccurred())
		Expect(principal.Disabled).To(BeTrue())
		Expect(a.removedPeers(ctx)).To(BeZero())
		remove(ctx, peer)
		remove(ctx, ca)
	})

	It("stays registered as it was where its present record is refused", func(ctx context.Context) {
		a, _ := newPeeringStage(ctx)
		b, system := newPeeringStage(ctx)
		ca := a.trustedCA(testCA{pem: string(b.server.CA(GinkgoTB()))})
		_, peer := a.federates(b)
		apply(ctx, ca, beReady("created"))
		apply(ctx, peer, beReady("created"))
		was := a.peers(ctx)[system]

		By("a name that does not resolve")
		b.server.Stop(GinkgoTB())
		b.server.Restart(GinkgoTB(), func(c *server.Config) { c.ServerName = "nowhere.invalid" })
		Eventually(readiness(ctx, peer)).Should(beUnready(v1beta1.ReasonDependencyNotReady, "cannot be resolved; check the name and the name servers; until then the registration of the peer stays unchanged"))
		Expect(readiness(ctx, peer)().Message).To(ContainSubstring(`the key server rejects the trust blob of KeyServer "` + b.name + `"`))
		Expect(a.peers(ctx)[system]).To(Equal(was))
		b.server.Stop(GinkgoTB())
		b.server.Restart(GinkgoTB(), func(c *server.Config) { c.ServerName = "192.0.2.253" })
		Eventually(readiness(ctx, peer)).Should(beReady(""))
		was = a.peers(ctx)[system]
		Expect(*was.ServerName).To(Equal("192.0.2.253"))

		By("a CA that is not trusted")
		b.server.Stop(GinkgoTB())
		b.server.Restart(GinkgoTB(), func(c *server.Config) { c.DataDir += "-anew" })
		bundle := string(b.server.CA(GinkgoTB()))
		edit(ctx, &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: b.name}}, func(ks *v1beta1.KeyServer) { ks.Spec.CABundle.Inline = &bundle })
		Eventually(readiness(ctx, peer)).Should(beUnready(v1beta1.ReasonDependencyNotReady, "does not trust; declare that CA as a TrustedCA; until then the registration of the peer stays unchanged"))
		Expect(a.peers(ctx)[system]).To(Equal(was))
		Expect(a.removedPeers(ctx)).To(BeZero())
		remove(ctx, peer)
		remove(ctx, ca)
	})

	It("is the key of its certificate: a renewal is noted once, whichever replica shows it", func(ctx context.Context) {
		a, _ := newPeeringStage(ctx)
		b, system := newPeeringStage(ctx)
		now := time.Now()
		issuer, err := pki.NewCA("Issuer of replicas", now, rand.Reader)
		Expect(err).NotTo(HaveOccurred())
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		Expect(err).NotTo(HaveOccurred())
		issue := func(key *ecdsa.PrivateKey, at time.Time) *x509.Certificate {
			id, err := issuer.IssueServer("replica", []string{"192.0.2.200"}, key, at, rand.Reader)
			Expect(err).NotTo(HaveOccurred())
			return id.Certificate
		}
		shows := func(leaf *x509.Certificate) {
			b.onTrustInfo(func(info schema.TrustInfo) schema.TrustInfo {
				chain, err := pki.EncodeChain(leaf, issuer.Certificate)
				Expect(err).NotTo(HaveOccurred())
				info.TrustBlob.Chain = chain
				return info
			})
		}
		older, newer := issue(key, now.Add(-time.Hour)), issue(key, now)
		shows(older)
		ca := a.trustedCA(testCA{pem: string(pki.EncodePEM(issuer.Certificate.Raw))})
		_, peer := a.federates(b)
		apply(ctx, ca, beReady("created"))
		apply(ctx, peer, beReady("created"))
		transport := a.peers(ctx)[system].TransportPrincipalID

		asked := 0
		registered := func(shown *x509.Certificate) (fingerprint string, replaced int32) {
			shows(shown)
			asked++
			token := fmt.Sprint(asked)
			annotate(ctx, peer, v1beta1.AnnotationReconcileRequestedAt, token)
			Eventually(func() string { _ = readiness(ctx, peer)(); return peer.Status.LastHandledReconcileAt }).Should(Equal(token))
			Eventually(readiness(ctx, peer)).Should(beReady(""))
			row := a.peers(ctx)[system]
			Expect(row.TransportPrincipalID).To(Equal(transport))
			Expect(peer.Status.Fingerprint).To(Equal(fingerprintOf(*row.Certificate)), "the status is about the record")
			return peer.Status.Fingerprint, a.replaces.Load()
		}
		for _, shown := range []*x509.Certificate{older, newer, older, newer, older} {
			want, times := fingerprint(newer), int32(1)
			if asked == 0 {
				want, times = fingerprint(older), 0
			}
			got, replaced := registered(shown)
			Expect(got).To(Equal(want))
			Expect(replaced).To(Equal(times), "the record went from one replica's certificate to the other's and back")
		}
		Expect(eventsAbout(ctx, peer)()).NotTo(ContainElement("DriftFound"))

		By("another key, which is another peer, whichever lasts longer")
		another, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		Expect(err).NotTo(HaveOccurred())
		rekeyed := issue(another, now.Add(-2*time.Hour))
		got, replaced := registered(rekeyed)
		Expect(got).To(Equal(fingerprint(rekeyed)))
		Expect(replaced).To(BeEquivalentTo(2))
		remove(ctx, peer)
		remove(ctx, ca)
	})
})

var _ = Describe("a trust blob in a Secret", func() {
	It("is waited for, read, reported where it is wrong, and never becomes another peer by itself", func(ctx context.Context) {
		p := newPeer(ctx)
		shown.trusts(ctx, p)
		obj := shown.trustedServer(p, func(o *v1beta1.TrustedServer) {
			o.Spec.TrustBlob = v1beta1.TrustBlobSource{SecretKeyRef: &v1beta1.LocalKeyReference{Name: "blob-of-a-peer", Key: "trust-blob"}}
		})
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, "Secret default/blob-of-a-peer does not exist"))

		source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blob-of-a-peer"}, Data: map[string][]byte{"blob": []byte(p.blob)}}
		Expect(kube.Create(ctx, source)).To(Succeed())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDependencyNotReady, `Secret default/blob-of-a-peer has no key "trust-blob"`))

		By("a Secret that holds something else, which nothing quotes")
		edit(ctx, source, func(s *corev1.Secret) { s.Data["trust-blob"] = []byte("hunter2 and other secrets") })
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonInvalidSpec, `key "trust-blob" of Secret default/blob-of-a-peer must have four fields`))
		Expect(readiness(ctx, obj)().Message).NotTo(ContainSubstring("hunter2"))

		By("the right one")
		edit(ctx, source, func(s *corev1.Secret) { s.Data["trust-blob"] = []byte(p.blob + "\r\n") })
		Eventually(readiness(ctx, obj)).Should(beReady("created"))

		By("a rotated one, of the same system")
		was := *shown.peers(ctx)[p.system].Port
		other := testserver.Start(GinkgoTB(), func(c *server.Config) {
			c.SystemID, c.ServerName, c.ExternalListen = uint32(p.system), fmt.Sprintf("192.0.2.%d", p.system), "127.0.0.1:0"
		})
		info, err := other.Admin(GinkgoTB()).GetLocalTrustInfo(ctx)
		Expect(err).NotTo(HaveOccurred())
		edit(ctx, source, func(s *corev1.Secret) { s.Data["trust-blob"] = []byte(info.TrustBlob.String()) })
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "trustBlob.certificate"))
		Expect(*shown.peers(ctx)[p.system].Port).To(Equal(was), "what is registered was touched")

		By("a Secret that is gone: what was declared is known no more, and nothing is taken away")
		Expect(kube.Delete(ctx, source)).To(Succeed())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDependencyNotReady, "does not exist"))
		Consistently(func() map[int64]schema.TrustedServer { return shown.peers(ctx) }, "300ms").Should(HaveKey(p.system))
		remove(ctx, obj)
		Expect(shown.peers(ctx)).NotTo(HaveKey(p.system))
	})
})

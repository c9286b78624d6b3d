package controllers

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// peer is another key server, with data from its own API.
type peer struct {
	system int64
	blob   string
	ca     testCA
}

var systems atomic.Int64

// newPeer starts another key server, reads its data and stops it. Its server name is a documentation address (RFC
// 5737), because a name that resolves to this machine would be rejected.
func newPeer(ctx context.Context) peer {
	GinkgoHelper()
	p := peer{system: 100 + systems.Add(1)}
	other := testserver.Start(GinkgoTB(), func(c *server.Config) {
		c.SystemID, c.ServerName, c.ExternalListen = uint32(p.system), fmt.Sprintf("192.0.2.%d", p.system), "127.0.0.1:0"
	})
	info, err := other.Admin(GinkgoTB()).GetLocalTrustInfo(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(info.TrustBlob).NotTo(BeNil())
	p.blob = info.TrustBlob.String()
	p.ca.pem = string(other.CA(GinkgoTB()))
	ca, err := parseCA([]byte(p.ca.pem))
	Expect(err).NotTo(HaveOccurred())
	p.ca.der, p.ca.fingerprint = ca.der, ca.fingerprint
	return p
}

// trustedServer returns a TrustedServer that is not applied yet.
func (s *stage) trustedServer(p peer, change ...func(*v1beta1.TrustedServer)) *v1beta1.TrustedServer {
	n := objects.Add(1)
	obj := &v1beta1.TrustedServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("peer-%d", n)},
		Spec: v1beta1.TrustedServerSpec{
			TrustBlob: v1beta1.TrustBlobSource{Inline: &p.blob}, FriendlyName: fmt.Sprintf("Peer %d", p.system),
		},
	}
	obj.Spec.KeyServerRef.Name = s.name
	for _, c := range change {
		c(obj)
	}
	return obj
}

// trusts makes the key server trust the CA of a peer, outside of Kubernetes.
func (s *stage) trusts(ctx context.Context, p peer) {
	GinkgoHelper()
	_, err := s.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: p.ca.der})
	Expect(err).NotTo(HaveOccurred())
}

// peers returns the registered peers by system id.
func (s *stage) peers(ctx context.Context) map[int64]schema.TrustedServer {
	GinkgoHelper()
	list, err := s.admin().ListTrustedServers(ctx, schema.TrustedServersQuery{})
	Expect(err).NotTo(HaveOccurred())
	by := map[int64]schema.TrustedServer{}
	for _, p := range list.TrustedServers {
		by[int64(*p.SystemID)] = p
	}
	return by
}

var _ = Describe("TrustedServer", func() {
	registered := func(ctx context.Context, p peer) func() string {
		return func() string { return deref(shown.peers(ctx)[p.system].FriendlyName) }
	}

	Describe("refusals", func() {
		It("says what is wrong with a trust blob, and where it comes from", func(ctx context.Context) {
			source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bad-blob"}, Data: map[string]string{"blob": "7 peer 9443 AAAA"}}
			Expect(kube.Create(ctx, source)).To(Succeed())
			obj := shown.trustedServer(peer{}, func(o *v1beta1.TrustedServer) {
				o.Spec.TrustBlob = v1beta1.TrustBlobSource{ConfigMapKeyRef: &v1beta1.LocalKeyReference{Name: "bad-blob", Key: "blob"}}
			})
			apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, `key "blob" of ConfigMap default/bad-blob must have four fields`))
			edit(ctx, source, func(s *corev1.ConfigMap) { s.Data["blob"] = "7\tpeer\t9443\tMAA=\n" })
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonInvalidSpec, "has a chain"))
			remove(ctx, obj)
			remove(ctx, source)
		})

		It("neither changes nor replaces a peer whose blob differs, and says what that would take", func(ctx context.Context) {
			p := newPeer(ctx)
			shown.trusts(ctx, p)
			obj := shown.trustedServer(p)
			apply(ctx, obj, beReady("created"))
			fields := strings.Split(p.blob, "\t")
			fields[2] = "9999"
			moved := strings.Join(fields, "\t")
			edit(ctx, obj, func(o *v1beta1.TrustedServer) {
				o.Spec.TrustBlob.Inline, o.Spec.AdoptionPolicy = &moved, v1beta1.AdoptAlways
			})
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "a different trustBlob.port"))
			Expect(readiness(ctx, obj)().Message).To(ContainSubstring("with replace, which keeps the access of its principals"))
			Expect(obj.Status.Drift).To(HaveLen(1))
			Consistently(func() int { return *shown.peers(ctx)[p.system].Port }).ShouldNot(Equal(9999))
			edit(ctx, obj, func(o *v1beta1.TrustedServer) { o.Spec.TrustBlob.Inline = &p.blob })
			Eventually(readiness(ctx, obj)).Should(beReady(""))
			remove(ctx, obj)
		})

		It("does not become another peer", func(ctx context.Context) {
			p := newPeer(ctx)
			shown.trusts(ctx, p)
			source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "moving-blob"}, Data: map[string]string{"blob": p.blob + "\n"}}
			Expect(kube.Create(ctx, source)).To(Succeed())
			obj := shown.trustedServer(p, func(o *v1beta1.TrustedServer) {
				o.Spec.TrustBlob = v1beta1.TrustBlobSource{ConfigMapKeyRef: &v1beta1.LocalKeyReference{Name: "moving-blob", Key: "blob"}}
			})
			apply(ctx, obj, beReady("created"))
			edit(ctx, source, func(s *corev1.ConfigMap) { s.Data["blob"] = "9" + p.blob })
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonInvalidSpec, "for the other key server, delete this object and create it again"))
			Expect(registered(ctx, p)()).NotTo(BeEmpty())
			remove(ctx, obj)
			Expect(registered(ctx, p)()).To(BeEmpty())
			remove(ctx, source)
		})
	})

	It("waits for the CA that its chain needs, and holds that CA while it is registered", func(ctx context.Context) {
		p := newPeer(ctx)
		obj := shown.trustedServer(p)
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, "does not trust; declare that CA as a TrustedCA"))
		Expect(readiness(ctx, obj)().Message).To(ContainSubstring(obj.Status.Issuer))
		Expect(registered(ctx, p)()).To(BeEmpty())

		ca := shown.trustedCA(p.ca)
		apply(ctx, ca, beReady(""))
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		Expect(obj.Status.IssuerFingerprint).To(Equal(p.ca.fingerprint))
		Expect(obj.Status.SystemID).To(HaveValue(Equal(p.system)))

		Expect(kube.Delete(ctx, ca)).To(Succeed())
		Eventually(readiness(ctx, ca)).Should(beUnready(v1beta1.ReasonInUse, "TrustedServer default/"+obj.Name))
		Consistently(func() map[string]string { return shown.trusted(ctx) }).Should(HaveKey(p.ca.fingerprint))
		remove(ctx, obj)
		Eventually(gone(ctx, ca)).Should(BeTrue())
	})

	It("is registered, renamed, repaired and removed, and says what the removal takes with it", func(ctx context.Context) {
		p := newPeer(ctx)
		shown.trusts(ctx, p)
		about := "as declared"
		obj := shown.trustedServer(p, func(o *v1beta1.TrustedServer) { o.Spec.Description = &about })
		apply(ctx, obj, beReady("created: a fresh list shows the peer"))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))
		Expect(obj.Status.ServerName).To(HavePrefix("192.0.2."))

		By("renaming")
		edit(ctx, obj, func(o *v1beta1.TrustedServer) { o.Spec.FriendlyName = "Renamed" })
		Eventually(registered(ctx, p)).Should(Equal("Renamed"))
		Eventually(readiness(ctx, obj)).Should(beCorrected())

		By("repairing an outside change")
		name := "Changed outside"
		Eventually(eventsAfter(ctx, obj, func() error {
			_, err := shown.admin().UpdateTrustedServer(ctx, schema.UpdateTrustedServerRequest{SystemID: schema.SystemID(p.system), FriendlyName: &name, Description: &name})
			return err
		})).WithPolling(time.Second).Should(ContainElements("DriftFound", "Updated"))
		Eventually(registered(ctx, p)).Should(Equal("Renamed"))

		By("repairing an outside removal")
		_, err := shown.admin().RemoveTrustedServer(ctx, schema.BySystemID{SystemID: schema.SystemID(p.system)})
		Expect(err).To(beDone())
		Eventually(registered(ctx, p)).Should(Equal("Renamed"))
		Eventually(readiness(ctx, obj)).Should(beReady(""))

		By("removing it with a principal trust that nobody declares")
		admin := shown.principal(ctx, "password", testserver.AdminName)
		made, err := shown.admin().CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{
			PrincipalID: admin.ID, TrustedServerSystemID: schema.SystemID(p.system), Flag: "expose",
		})
		Expect(err).NotTo(HaveOccurred())
		// Another finalizer keeps the object, so that its last status can be read.
		edit(ctx, obj, func(o *v1beta1.TrustedServer) { o.Finalizers = append(o.Finalizers, "example.com/watching") })
		Expect(kube.Delete(ctx, obj)).To(Succeed())
		Eventually(registered(ctx, p)).Should(BeEmpty())
		Eventually(eventsAbout(ctx, obj)).Should(ContainElements("Removing", "Deleted"))
		_ = readiness(ctx, obj)()
		Expect(obj.Status.Removal).To(HaveValue(HaveField("OrphanedPrincipalTrusts", ConsistOf(made.PrincipalTrust.ID.String()))))
		Expect(obj.Status.Removal.ACLSideEffect).To(ContainSubstring("purged"))
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
			g.Expect(obj.Finalizers).To(ConsistOf("example.com/watching"))
		}).Should(Succeed())
		edit(ctx, obj, func(o *v1beta1.TrustedServer) { o.Finalizers = nil })
		_, err = shown.admin().DeletePrincipalTrust(ctx, schema.ByID{ID: made.PrincipalTrust.ID})
		Expect(err).NotTo(HaveOccurred())
	})

	It("takes over a peer that is there, as its adoption policy says, and leaves it", func(ctx context.Context) {
		p := newPeer(ctx)
		shown.trusts(ctx, p)
		_, err := shown.admin().AddTrustedServer(ctx, schema.AddTrustedServerRequest{TrustBlob: read(schema.ParseTrustBlob, p.blob), FriendlyName: "Registered by hand"})
		Expect(err).NotTo(HaveOccurred())

		obj := shown.trustedServer(p)
		apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "differs in friendlyName"))
		edit(ctx, obj, func(o *v1beta1.TrustedServer) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
		Eventually(readiness(ctx, obj)).Should(beCorrected())
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Adopted))

		younger := shown.trustedServer(p, func(o *v1beta1.TrustedServer) { o.Name = "z" + o.Name })
		apply(ctx, younger, beUnready(v1beta1.ReasonConflict, "is claimed by TrustedServer default/"+obj.Name))
		remove(ctx, younger)
		remove(ctx, obj)
		Expect(registered(ctx, p)()).NotTo(BeEmpty(), "what was adopted is not removed")

		observed := shown.trustedServer(p, func(o *v1beta1.TrustedServer) {
			o.Spec.ManagementPolicy, o.Spec.FriendlyName = v1beta1.Observe, "Another"
		})
		apply(ctx, observed, beUnready(v1beta1.ReasonDrifted, "differs in friendlyName"))
		remove(ctx, observed)
		taken := shown.trustedServer(p, func(o *v1beta1.TrustedServer) { o.Spec.DeletionPolicy = v1beta1.DeleteExternal })
		apply(ctx, taken, beReady("took over"))
		remove(ctx, taken)
		Expect(registered(ctx, p)()).To(BeEmpty(), "Delete removes what was adopted, too")
	})
})

package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// revocationCalls counts the writes of the controllers about revocation.
type revocationCalls struct {
	imports, policies atomic.Int32
	refuses           atomic.Bool // makes ImportCRL fail
}

// ImportCRL implements connection.API.
func (m *meddled) ImportCRL(ctx context.Context, in schema.ImportCRLRequest) (schema.CRLImported, error) {
	m.revocation.imports.Add(1)
	if m.revocation.refuses.Load() {
		return schema.CRLImported{}, &apiclient.Error{Status: 400, Code: "INVALID_ARGUMENT", Detail: "the list is not to its taste"}
	}
	return m.API.ImportCRL(ctx, in)
}

// SetRevocationPolicy implements connection.API.
func (m *meddled) SetRevocationPolicy(ctx context.Context, in schema.SetRevocationPolicyRequest) (schema.RevocationPolicySaved, error) {
	m.revocation.policies.Add(1)
	return m.API.SetRevocationPolicy(ctx, in)
}

// issuer is a CA that signs revocation lists.
type issuer struct {
	testCA
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(change ...func(*x509.Certificate)) issuer {
	GinkgoHelper()
	n := int64(objects.Add(1))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: fmt.Sprintf("Issuer %d", n)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	for _, c := range change {
		c(template)
	}
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	cert, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	ca := rig.CAOf(der)
	return issuer{testCA{pem: ca.PEM, der: ca.DER, fingerprint: ca.Fingerprint}, cert, key}
}

// crl signs a list that is current for a week.
func (i issuer) crl(number int64, thisUpdate time.Time, change ...func(*x509.RevocationList)) []byte {
	GinkgoHelper()
	list := &x509.RevocationList{
		Number: big.NewInt(number), ThisUpdate: thisUpdate, NextUpdate: thisUpdate.Add(7 * 24 * time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(4711), RevocationTime: thisUpdate}},
	}
	for _, c := range change {
		c(list)
	}
	signer := *i.cert
	signer.KeyUsage |= x509.KeyUsageCRLSign // required by the library for signing
	der, err := x509.CreateRevocationList(rand.Reader, list, &signer, i.key)
	Expect(err).NotTo(HaveOccurred())
	return der
}

func crlPEM(der ...[]byte) (text string) {
	for _, d := range der {
		text += string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: d}))
	}
	return text
}

// revoking returns the revocation policy and list of a CA on the key server.
func (s *stage) revoking(ctx context.Context, i issuer) func() schema.RevocationIssuer {
	return func() schema.RevocationIssuer {
		list, err := s.admin().ListRevocationIssuers(ctx)
		if err != nil {
			return schema.RevocationIssuer{Subject: err.Error()}
		}
		for _, r := range list.Issuers {
			if r.Digest == issuerDigest(i.cert) {
				return r
			}
		}
		return schema.RevocationIssuer{}
	}
}

func bePolicy(mode v1beta1.RevocationMode, maxAge time.Duration) OmegaMatcher {
	return And(HaveField("Mode", string(mode)), HaveField("MaxAgeSeconds", int64(maxAge/time.Second)))
}

// setPolicy sets a policy as another client.
func (s *stage) setPolicy(ctx context.Context, i issuer, mode v1beta1.RevocationMode) {
	GinkgoHelper()
	_, err := s.admin().SetRevocationPolicy(ctx, schema.SetRevocationPolicyRequest{Digest: issuerDigest(i.cert), Mode: string(mode)})
	Expect(err).NotTo(HaveOccurred())
}

func withRevocation(mode v1beta1.RevocationMode, configMap string) func(*v1beta1.TrustedCA) {
	return func(o *v1beta1.TrustedCA) {
		o.Spec.Revocation = &v1beta1.Revocation{Mode: mode}
		if configMap != "" {
			o.Spec.Revocation.CRL = &v1beta1.CRLSource{ConfigMapKeyRef: v1beta1.LocalKeyReference{Name: configMap, Key: "crl"}}
		}
	}
}

// lists creates a ConfigMap with a revocation list.
func lists(ctx context.Context, text string) string {
	GinkgoHelper()
	name := fmt.Sprintf("crl-%d", objects.Add(1))
	Expect(kube.Create(ctx, configMap(name, "crl", text))).To(Succeed())
	return name
}

var _ = Describe("TrustedCA revocation", func() {
	now := func() time.Time { return time.Now().Truncate(time.Second) }

	DescribeTable("sends nothing for a list that is none of the CA's", func(ctx context.Context, says string, text func(issuer) string, change ...func(*x509.Certificate)) {
		ca := newIssuer(change...)
		imports, policies := shown.revocation.imports.Load(), shown.revocation.policies.Load()
		name := lists(ctx, text(ca))
		obj := shown.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationRequired, name))
		apply(ctx, obj, And(beUnready(v1beta1.ReasonInvalidSpec, `spec.revocation.crl: key "crl" of ConfigMap default/`+name+" "), beUnready(v1beta1.ReasonInvalidSpec, says)))
		Expect(shown.trusted(ctx)).NotTo(HaveKey(ca.fingerprint))
		Expect(shown.revocation.imports.Load()).To(Equal(imports))
		Expect(shown.revocation.policies.Load()).To(Equal(policies))
	},
		Entry("text", "is not one certificate revocation list", func(issuer) string { return "hello" }),
		Entry("a certificate", "is not a PEM block of type X509 CRL", func(i issuer) string { return i.pem }),
		Entry("a damaged list and a good one", "is not a PEM block of type X509 CRL: line 3: the base64 of the block that begins on line 1 is incomplete", func(i issuer) string {
			return "-----BEGIN X509 CRL-----\nAAA\n-----END X509 CRL-----\n" + crlPEM(i.crl(1, now()))
		}),
		Entry("two lists", "holds more than one PEM block: the second begins on line ", func(i issuer) string { return crlPEM(i.crl(1, now()), i.crl(2, now())) }),
		Entry("a list of another CA", "was issued by ", func(issuer) string { return crlPEM(newIssuer().crl(1, now())) }),
		Entry("a list of a CA of the same name", "is not signed with that CA's key", func(i issuer) string {
			return crlPEM(newIssuer(func(t *x509.Certificate) { t.Subject = i.cert.Subject }).crl(1, now()))
		}),
		Entry("a delta", "has an unsupported critical extension", func(i issuer) string {
			return crlPEM(i.crl(2, now(), func(l *x509.RevocationList) {
				l.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}}
			}))
		}),
		Entry("a list of tomorrow", "which is in the future", func(i issuer) string { return crlPEM(i.crl(1, now().Add(24*time.Hour))) }),
		Entry("a list of a CA that signs none", "whose certificate does not allow it to sign revocation lists", func(i issuer) string { return crlPEM(i.crl(1, now())) },
			func(t *x509.Certificate) { t.KeyUsage = x509.KeyUsageCertSign }),
	)

	It("waits for the ConfigMap, and trusts nothing until then", func(ctx context.Context) {
		ca := newIssuer()
		obj := shown.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationRequired, "no-list-yet"))
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, "ConfigMap default/no-list-yet does not exist"))
		Expect(shown.trusted(ctx)).NotTo(HaveKey(ca.fingerprint))
		Expect(kube.Create(ctx, configMap("no-list-yet", "crl", crlPEM(ca.crl(1, now()))))).To(Succeed())
		Eventually(readiness(ctx, obj)).Should(beReady("revocation policy required, list 1 of "))
	})

	It("sets the policy although the key server refuses the list, and says why", func(ctx context.Context) {
		s := newStage(ctx)
		s.revocation.refuses.Store(true)
		ca := newIssuer()
		obj := s.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationRequired, lists(ctx, crlPEM(ca.crl(1, now())))))
		apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, "the list is not to its taste"))
		Expect(s.revoking(ctx, ca)()).To(bePolicy(v1beta1.RevocationRequired, 0))
		Expect(obj.Status.CertificateID).NotTo(BeEmpty())
		s.revocation.refuses.Store(false)
		Eventually(readiness(ctx, obj)).Should(beReady("list 1 of "))
	})

	It("does not send a list that was due for replacement, and says so until there is a newer one", func(ctx context.Context) {
		ca := newIssuer()
		imports := shown.revocation.imports.Load()
		name := lists(ctx, crlPEM(ca.crl(1, now().Add(-8*24*time.Hour))))
		obj := shown.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationWhenAvailable, name))
		apply(ctx, obj, beUnready(v1beta1.ReasonExpired, "is not imported, because its nextUpdate "))
		Expect(obj.Status.Revocation.Evidence).To(Equal(v1beta1.NoEvidence))
		Expect(shown.revoking(ctx, ca)()).To(bePolicy(v1beta1.RevocationWhenAvailable, 0))
		Expect(shown.revocation.imports.Load()).To(Equal(imports))
		edit(ctx, configMap(name, "", ""), func(m *corev1.ConfigMap) { m.Data["crl"] = crlPEM(ca.crl(2, now())) })
		Eventually(readiness(ctx, obj)).Should(beReady("list 2 of "))
		Expect(obj.Status.Revocation).To(And(HaveField("Evidence", v1beta1.CurrentEvidence), HaveField("NotImported", ""), HaveField("Number", "2"), HaveField("Revoked", int64(1))))
	})

	DescribeTable("never sends a list that is not newer than the one held", func(ctx context.Context, number int64, age time.Duration) {
		ca, at := newIssuer(), now()
		name := lists(ctx, crlPEM(ca.crl(5, at.Add(-time.Hour))))
		obj := shown.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationWhenAvailable, name))
		apply(ctx, obj, beReady("list 5 of "))
		_, err := shown.admin().ImportCRL(ctx, schema.ImportCRLRequest{CRL: ca.crl(9, at.Add(-time.Minute))})
		Expect(err).NotTo(HaveOccurred())
		imports := shown.revocation.imports.Load()
		edit(ctx, configMap(name, "", ""), func(m *corev1.ConfigMap) {
			m.Data["crl"] = crlPEM(ca.crl(number, at.Add(-age), func(l *x509.RevocationList) { l.RevokedCertificateEntries = nil }))
		})
		Eventually(func() *v1beta1.RevocationStatus { _ = readiness(ctx, obj)(); return obj.Status.Revocation }).
			Should(And(HaveField("Number", "9"), HaveField("NotImported", ContainSubstring("is not newer than that of the key server (list 9 of "))))
		annotate(ctx, obj, v1beta1.AnnotationReconcileRequestedAt, "again")
		Eventually(func() string { _ = readiness(ctx, obj)(); return obj.Status.LastHandledReconcileAt }).Should(Equal("again"))
		Expect(readiness(ctx, obj)()).To(beReady(""))
		Expect(shown.revocation.imports.Load()).To(Equal(imports))
		Expect(shown.revoking(ctx, ca)().CRL).To(HaveField("Revoked", 1))
	},
		Entry("by number", int64(8), time.Duration(0)),
		Entry("by date", int64(10), time.Hour),
		Entry("being another one of the same number and date", int64(9), time.Minute),
	)

	It("says that a policy refuses everybody for want of a list, and hears of one that somebody imports", func(ctx context.Context) {
		ca := newIssuer()
		obj := shown.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationRequired, ""))
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, "the key server has no revocation list of this CA; the key server rejects all certificates of this CA"))
		Expect(shown.revoking(ctx, ca)()).To(bePolicy(v1beta1.RevocationRequired, 0))
		_, err := shown.admin().ImportCRL(ctx, schema.ImportCRLRequest{CRL: ca.crl(1, now())})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj), 10*time.Second).Should(beReady(""))
		Expect(obj.Status.Revocation.Evidence).To(Equal(v1beta1.CurrentEvidence))
	})

	It("leaves alone what is not declared", func(ctx context.Context) {
		ca := newIssuer()
		policies := shown.revocation.policies.Load()
		obj := shown.trustedCA(ca.testCA)
		apply(ctx, obj, beReady(""))
		shown.setPolicy(ctx, ca, v1beta1.RevocationRequired)
		Consistently(shown.revoking(ctx, ca)).Should(bePolicy(v1beta1.RevocationRequired, 0))
		Expect(readiness(ctx, obj)()).To(beReady(""))
		Expect(obj.Status.Revocation).To(BeNil())
		Expect(shown.revocation.policies.Load()).To(Equal(policies))
	})

	It("under Observe lists what differs, and writes nothing", func(ctx context.Context) {
		ca := newIssuer()
		_, err := shown.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: ca.der})
		Expect(err).NotTo(HaveOccurred())
		obj := shown.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationRequired, lists(ctx, crlPEM(ca.crl(1, now())))),
			func(o *v1beta1.TrustedCA) { o.Spec.ManagementPolicy = v1beta1.Observe })
		apply(ctx, obj, beUnready(v1beta1.ReasonDrifted, "revocation.mode and revocation.crl"))
		Expect(shown.revoking(ctx, ca)()).To(bePolicy(v1beta1.RevocationOff, 0))
	})

	It("takes over what exists only as it is, unless it is told to correct it", func(ctx context.Context) {
		ca := newIssuer()
		_, err := shown.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: ca.der})
		Expect(err).NotTo(HaveOccurred())
		obj := shown.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationWhenAvailable, ""))
		apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "differs in revocation.mode"))
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		Expect(shown.revoking(ctx, ca)()).To(bePolicy(v1beta1.RevocationWhenAvailable, 0))
	})

	It("is set with the CA, corrected when somebody changes it, and imported anew when the ConfigMap has a newer list", func(ctx context.Context) {
		ca := newIssuer()
		imports, policies := shown.revocation.imports.Load(), shown.revocation.policies.Load()
		made := now().Add(-time.Minute)
		der := ca.crl(1, made)
		name := lists(ctx, "")
		edit(ctx, configMap(name, "", ""), func(m *corev1.ConfigMap) { m.Data, m.BinaryData = nil, map[string][]byte{"crl": der} })
		obj := shown.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationRequired, name), func(o *v1beta1.TrustedCA) {
			o.Spec.Revocation.MaxAge = &metav1.Duration{Duration: 24 * time.Hour}
		})
		apply(ctx, obj, beReady("revocation policy required, list 1 of "))
		Expect(shown.revoking(ctx, ca)()).To(And(bePolicy(v1beta1.RevocationRequired, 24*time.Hour), HaveField("Evidence", "current")))
		Expect(obj.Status.Revocation).To(And(HaveField("Mode", v1beta1.RevocationRequired), HaveField("Evidence", v1beta1.CurrentEvidence),
			HaveField("CurrentUntil.Time", BeTemporally("==", made.Add(24*time.Hour)))))
		Expect(shown.revocation.imports.Load()).To(Equal(imports + 1))
		Expect(shown.revocation.policies.Load()).To(Equal(policies + 1))

		By("costing nothing at rest")
		version := obj.ResourceVersion
		Consistently(func() string { _ = readiness(ctx, obj)(); return obj.ResourceVersion }).Should(Equal(version))
		Expect(shown.revocation.policies.Load()).To(Equal(policies + 1))

		By("correcting an outside change")
		shown.setPolicy(ctx, ca, v1beta1.RevocationOff)
		Eventually(shown.revoking(ctx, ca), 5*time.Second).Should(bePolicy(v1beta1.RevocationRequired, 24*time.Hour))
		Eventually(eventsAbout(ctx, obj)).Should(ContainElement("DriftFound"))
		Eventually(readiness(ctx, obj)).Should(beCorrected())

		By("importing a newer list, in PEM")
		edit(ctx, configMap(name, "", ""), func(m *corev1.ConfigMap) {
			m.BinaryData, m.Data = nil, map[string]string{"crl": crlPEM(ca.crl(2, now()))}
		})
		Eventually(func() string { _ = readiness(ctx, obj)(); return obj.Status.Revocation.Number }).Should(Equal("2"))
		Expect(shown.revocation.imports.Load()).To(Equal(imports + 2))

		By("leaving it when it is declared no more")
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Revocation = nil })
		Eventually(func() *v1beta1.RevocationStatus { _ = readiness(ctx, obj)(); return obj.Status.Revocation }).Should(BeNil())
		Expect(shown.revoking(ctx, ca)()).To(bePolicy(v1beta1.RevocationRequired, 24*time.Hour))
	})

	It("warns of a list that is about to be stale, and is not ready once it is", func(ctx context.Context) {
		ca := newIssuer()
		name := lists(ctx, crlPEM(ca.crl(1, now(), func(l *x509.RevocationList) { l.NextUpdate = now().Add(8 * time.Second) })))
		obj := shown.trustedCA(ca.testCA, withRevocation(v1beta1.RevocationRequired, name))
		apply(ctx, obj, beReady(""))
		Eventually(func() bool { _ = readiness(ctx, obj)(); return has(obj, v1beta1.ConditionExpiring) }).Should(BeTrue())
		Eventually(eventsAbout(ctx, obj)).Should(ContainElement("Expiring"))
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonExpired, "the key server rejects all certificates of this CA"))
		Expect(obj.Status.Revocation.Evidence).To(Equal(v1beta1.StaleEvidence))
		edit(ctx, configMap(name, "", ""), func(m *corev1.ConfigMap) { m.Data["crl"] = crlPEM(ca.crl(2, now())) })
		Eventually(readiness(ctx, obj)).Should(beReady("list 2 of "))
	})

	It("holds for both CAs of a rotation", func(ctx context.Context) {
		old, fresh := newIssuer(), newIssuer()
		obj := shown.trustedCA(old.testCA, withRevocation(v1beta1.RevocationWhenAvailable, ""))
		apply(ctx, obj, beReady(""))
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Certificate.Inline = &fresh.pem })
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		Expect(shown.revoking(ctx, old)()).To(bePolicy(v1beta1.RevocationWhenAvailable, 0))
		Expect(shown.revoking(ctx, fresh)()).To(bePolicy(v1beta1.RevocationWhenAvailable, 0))

		By("changing it for both")
		edit(ctx, obj, func(o *v1beta1.TrustedCA) {
			o.Spec.Revocation.MaxAge = &metav1.Duration{Duration: time.Hour}
		})
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		Expect(shown.revoking(ctx, old)()).To(bePolicy(v1beta1.RevocationWhenAvailable, time.Hour))
		Expect(shown.revoking(ctx, fresh)()).To(bePolicy(v1beta1.RevocationWhenAvailable, time.Hour))

		By("correcting it for both")
		shown.setPolicy(ctx, old, v1beta1.RevocationOff)
		Eventually(shown.revoking(ctx, old), 5*time.Second).Should(bePolicy(v1beta1.RevocationWhenAvailable, time.Hour))

		By("leaving the old one to another object that declares it")
		other := shown.trustedCA(old.testCA, withRevocation(v1beta1.RevocationOff, ""), func(o *v1beta1.TrustedCA) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
		apply(ctx, other, beUnready(v1beta1.ReasonConflict, "is owned by")) // the manager knows the owner from now on
		shown.setPolicy(ctx, old, v1beta1.RevocationOff)
		policies := shown.revocation.policies.Load()
		Consistently(shown.revoking(ctx, old)).Should(bePolicy(v1beta1.RevocationOff, 0))
		Expect(shown.revocation.policies.Load()).To(Equal(policies))
		Expect(client.IgnoreNotFound(kube.Delete(ctx, other))).To(Succeed())
	})
})

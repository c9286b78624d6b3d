package controllers

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

var _ = Describe("TrustedCA", func() {
	isTrusted := func(ctx context.Context, ca testCA) func() bool {
		return func() bool { return shown.trusted(ctx)[ca.fingerprint] != "" }
	}

	Describe("refusals", func() {
		It("leaves alone what exists where adoptionPolicy is Never", func(ctx context.Context) {
			ca := newCA()
			_, err := shown.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: ca.der})
			Expect(err).NotTo(HaveOccurred())
			obj := shown.trustedCA(ca, func(o *v1beta1.TrustedCA) { o.Spec.AdoptionPolicy = v1beta1.AdoptNever })
			apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "adoptionPolicy is Never"))
			Expect(obj.Status.CertificateID).To(BeEmpty())
			Expect(obj.Finalizers).To(BeEmpty())
			remove(ctx, obj)
			Expect(isTrusted(ctx, ca)()).To(BeTrue())
		})

		It("says which reference is missing, and goes on when it appears", func(ctx context.Context) {
			ca := newCA()
			obj := shown.trustedCA(ca, fromConfigMap("appears-later"))
			apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, "ConfigMap default/appears-later does not exist"))
			Expect(kube.Create(ctx, configMap("appears-later", "other", ca.pem))).To(Succeed())
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDependencyNotReady, `has no key "ca.crt"`))
			edit(ctx, configMap("appears-later", "", ""), func(m *corev1.ConfigMap) { m.Data = map[string]string{"ca.crt": ca.pem} })
			Eventually(readiness(ctx, obj)).Should(beReady("matched by certificate-body"))
		})

		It("never shows what a wrong reference names", func(ctx context.Context) {
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "not-a-certificate"},
				StringData: map[string]string{"tls.key": "hunter2"},
			}
			Expect(kube.Create(ctx, secret)).To(Succeed())
			obj := shown.trustedCA(newCA(), func(o *v1beta1.TrustedCA) {
				o.Spec.Certificate = v1beta1.CertificateSource{SecretKeyRef: &v1beta1.LocalKeyReference{Name: secret.Name, Key: "tls.key"}}
			})
			apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, `key "tls.key" of Secret default/not-a-certificate is not a PEM block of type CERTIFICATE`))
			Expect(fmt.Sprintf("%+v", obj)).NotTo(ContainSubstring("hunter2"))
		})

		It("of two that declare the same lets the older win, and the younger inherit", func(ctx context.Context) {
			ca := newCA()
			elder := shown.trustedCA(ca)
			apply(ctx, elder, beReady(""))
			time.Sleep(1100 * time.Millisecond) // creation times have a resolution of one second
			younger := shown.trustedCA(ca)
			apply(ctx, younger, beUnready(v1beta1.ReasonConflict, "is claimed by TrustedCA default/"+elder.Name))

			removes := shown.removes.Load()
			remove(ctx, elder)
			Eventually(readiness(ctx, younger)).Should(beReady(""))
			Expect(shown.removes.Load()).To(Equal(removes), "trust has been interrupted")
			Expect(isTrusted(ctx, ca)()).To(BeTrue())
		})
	})

	It("is trusted, verified with evidence, kept, and removed", func(ctx context.Context) {
		ca := newCA()
		before, adds := len(shown.trusted(ctx)), shown.adds.Load()
		obj := shown.trustedCA(ca)
		apply(ctx, obj, beReady("created: matched by certificate-body"))

		By("naming the evidence")
		Expect(readiness(ctx, obj)().Message).To(ContainSubstring("%d after", before+1))
		Expect(obj.Status.CertificateID).To(Equal(shown.trusted(ctx)[ca.fingerprint]))
		Expect(obj.Status.Fingerprint).To(Equal(ca.fingerprint))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))
		Expect(obj.Status.LastVerifiedTime).NotTo(BeNil())
		Expect(obj.Finalizers).To(ConsistOf(v1beta1.FinalizerExternal))
		Expect(shown.adds.Load()).To(Equal(adds+1), "one write is enough")
		Eventually(eventsAbout(ctx, obj)).Should(ContainElement("Created"))

		By("costing nothing at rest")
		version, lists := obj.ResourceVersion, shown.lists.Load()
		Consistently(func() string {
			_ = readiness(ctx, obj)()
			return obj.ResourceVersion
		}).Should(Equal(version))
		Expect(shown.lists.Load()).To(Equal(lists))

		By("repairing an outside removal within about a second")
		was := obj.Status.CertificateID
		_, err := shown.admin().RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: read(schema.ParseBase64ID, was)})
		Expect(err).To(beDone())
		Eventually(isTrusted(ctx, ca), 5*time.Second).Should(BeTrue())
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		Eventually(func() string { _ = readiness(ctx, obj)(); return obj.Status.CertificateID }).ShouldNot(Equal(was))
		Eventually(eventsAbout(ctx, obj)).Should(ContainElement("DriftFound"))

		By("removing what it created")
		remove(ctx, obj)
		Expect(isTrusted(ctx, ca)()).To(BeFalse())
	})

	It("adopts what is identical, and leaves it when it goes", func(ctx context.Context) {
		ca := newCA()
		_, err := shown.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: ca.der})
		Expect(err).NotTo(HaveOccurred())
		obj := shown.trustedCA(ca)
		apply(ctx, obj, beReady("took over"))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Adopted))
		remove(ctx, obj)
		Expect(isTrusted(ctx, ca)()).To(BeTrue())
	})

	DescribeTable("deletion policies", func(ctx context.Context, policy v1beta1.DeletionPolicy, adopted, stays bool) {
		ca := newCA()
		if adopted {
			_, err := shown.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: ca.der})
			Expect(err).NotTo(HaveOccurred())
		}
		obj := shown.trustedCA(ca, func(o *v1beta1.TrustedCA) { o.Spec.DeletionPolicy = policy })
		apply(ctx, obj, beReady(""))
		remove(ctx, obj)
		Expect(isTrusted(ctx, ca)()).To(Equal(stays))
	},
		Entry("Retain leaves what was created", v1beta1.RetainExternal, false, true),
		Entry("Delete deletes what was created", v1beta1.DeleteExternal, false, false),
		Entry("Delete deletes what was adopted", v1beta1.DeleteExternal, true, false),
		Entry("DeleteIfCreated deletes what was created", v1beta1.DeleteIfCreated, false, false),
		Entry("DeleteIfCreated leaves what was adopted", v1beta1.DeleteIfCreated, true, true),
	)

	It("rotates: the new CA is trusted before the old one goes", func(ctx context.Context) {
		old, fresh := newCA(), newCA()
		Expect(kube.Create(ctx, configMap("rotated", "ca.crt", old.pem))).To(Succeed())
		obj := shown.trustedCA(old, fromConfigMap("rotated"), func(o *v1beta1.TrustedCA) {
			o.Spec.Rotation.Overlap = &metav1.Duration{Duration: 4 * time.Second}
		})
		apply(ctx, obj, beReady(""))
		edit(ctx, configMap("rotated", "", ""), func(m *corev1.ConfigMap) { m.Data["ca.crt"] = fresh.pem })
		Eventually(isTrusted(ctx, fresh)).Should(BeTrue())
		Expect(isTrusted(ctx, old)()).To(BeTrue(), "the old CA went before its overlap ended")
		Eventually(func() []v1beta1.SupersededCA { _ = readiness(ctx, obj)(); return obj.Status.Superseded }).
			Should(ConsistOf(HaveField("Fingerprint", old.fingerprint)))
		Expect(readiness(ctx, obj)()).To(beReady(""))
		Eventually(isTrusted(ctx, old)).Should(BeFalse())
		Expect(isTrusted(ctx, fresh)()).To(BeTrue())
		Eventually(func() []v1beta1.SupersededCA { _ = readiness(ctx, obj)(); return obj.Status.Superseded }).Should(BeEmpty())
		Expect(eventsAbout(ctx, obj)()).NotTo(ContainElement("DriftFound"), "a rotation is nobody's outside change")
		remove(ctx, obj)
		Expect(isTrusted(ctx, fresh)()).To(BeFalse())
	})

	It("rotates an edited inline certificate, and takes both along when deleted", func(ctx context.Context) {
		old, fresh := newCA(), newCA()
		obj := shown.trustedCA(old)
		apply(ctx, obj, beReady(""))
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Certificate.Inline = &fresh.pem })
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		Expect(isTrusted(ctx, fresh)()).To(BeTrue())
		Expect(isTrusted(ctx, old)()).To(BeTrue())
		remove(ctx, obj)
		Expect(isTrusted(ctx, fresh)()).To(BeFalse())
		Expect(isTrusted(ctx, old)()).To(BeFalse())
	})

	It("keeps the old CA as long as the new one is not valid, and says until when", func(ctx context.Context) {
		old, next := newCA(), newCA()
		later := newIssuer(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(40 * 24 * time.Hour) })
		obj := shown.trustedCA(old, func(o *v1beta1.TrustedCA) {
			o.Spec.Rotation.Overlap = &metav1.Duration{Duration: time.Second}
		})
		apply(ctx, obj, beReady(""))
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Certificate.Inline = &later.pem })
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonNotYetValid, "the certificate is valid from "+later.cert.NotBefore.UTC().Format(time.RFC3339)))
		Expect(isTrusted(ctx, later.testCA)()).To(BeTrue())
		Expect(isTrusted(ctx, old)()).To(BeTrue())
		Expect(obj.Status.Superseded).To(ConsistOf(HaveField("RemoveAfter.Time", BeTemporally("==", later.cert.NotBefore.Add(time.Second)))))
		Eventually(eventsAbout(ctx, obj)).Should(ContainElement("NotYetValid"))

		By("removing both after the overlap of a CA that is valid")
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Certificate.Inline = &next.pem })
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		Eventually(isTrusted(ctx, old)).Should(BeFalse())
		Eventually(isTrusted(ctx, later.testCA)).Should(BeFalse())
		Expect(isTrusted(ctx, next)()).To(BeTrue())
	})

	It("is Ready at the moment at which its certificate becomes valid", func(ctx context.Context) {
		ca := newIssuer(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(5 * time.Second) })
		obj := shown.trustedCA(ca.testCA)
		Expect(kube.Create(ctx, obj)).To(Succeed())
		Eventually(readiness(ctx, obj)).WithTimeout(time.Minute).Should(beReady(""))
		Expect(time.Now()).To(BeTemporally(">=", ca.cert.NotBefore))
	})

	It("under Observe reports and writes nothing", func(ctx context.Context) {
		ca := newCA()
		adds := shown.adds.Load()
		obj := shown.trustedCA(ca, func(o *v1beta1.TrustedCA) { o.Spec.ManagementPolicy = v1beta1.Observe })
		apply(ctx, obj, beUnready(v1beta1.ReasonDrifted, "does not exist on the key server"))
		Expect(obj.Finalizers).To(BeEmpty())
		Expect(obj.Status.Drift).To(ConsistOf(v1beta1.FieldDrift{Field: "exists", Declared: "true", Observed: "false"}))
		_, err := shown.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: ca.der})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beReady("re-read"))
		Expect(obj.Status.Provenance).To(BeEmpty())
		Expect(shown.adds.Load()).To(Equal(adds))
		remove(ctx, obj)
		Expect(isTrusted(ctx, ca)()).To(BeTrue())
	})

	It("is not ready once its certificate has expired, however the key server holds it", func(ctx context.Context) {
		obj := shown.trustedCA(newCAUntil(time.Now().Add(-time.Minute)))
		apply(ctx, obj, beUnready(v1beta1.ReasonExpired, "the certificate is valid until "))
		Expect(has(obj, v1beta1.ConditionVerified)).To(BeTrue())
		Expect(has(obj, v1beta1.ConditionExpiring)).To(BeFalse())
		Eventually(eventsAbout(ctx, obj)).Should(ContainElement("Expired"))
	})

	It("says that its certificate is about to expire, once, and as early as is asked for", func(ctx context.Context) {
		ca := newCAUntil(time.Now().Add(29 * 24 * time.Hour))
		obj := shown.trustedCA(ca)
		apply(ctx, obj, beReady(""))
		Expect(has(obj, v1beta1.ConditionExpiring)).To(BeTrue())
		Eventually(eventsAbout(ctx, obj)).Should(ContainElement("Expiring"))
		edit(ctx, obj, func(obj *v1beta1.TrustedCA) { obj.Spec.WarnBefore = &metav1.Duration{Duration: 24 * time.Hour} })
		Eventually(func() bool { _ = readiness(ctx, obj)(); return has(obj, v1beta1.ConditionExpiring) }).Should(BeFalse())
	})

	It("is no longer ready at the moment at which its certificate expires", func(ctx context.Context) {
		obj := shown.trustedCA(newCAUntil(time.Now().Add(6 * time.Second)))
		apply(ctx, obj, beReady(""))
		Eventually(readiness(ctx, obj)).WithTimeout(time.Minute).Should(beUnready(v1beta1.ReasonExpired, ""))
	})

	It("rests while paused, and says so", func(ctx context.Context) {
		ca := newCA()
		obj := shown.trustedCA(ca)
		apply(ctx, obj, beReady(""))
		annotate(ctx, obj, v1beta1.AnnotationPaused, "true")
		Eventually(func() bool {
			_ = readiness(ctx, obj)()
			return has(obj, v1beta1.ConditionPaused)
		}).Should(BeTrue())
		_, err := shown.admin().RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: read(schema.ParseBase64ID, obj.Status.CertificateID)})
		Expect(err).NotTo(HaveOccurred())
		Consistently(isTrusted(ctx, ca)).Should(BeFalse())
		Expect(readiness(ctx, obj)()).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", v1beta1.ReasonPaused)))
		annotate(ctx, obj, v1beta1.AnnotationPaused, "")
		Eventually(isTrusted(ctx, ca)).Should(BeTrue())
		Eventually(func() bool { _ = readiness(ctx, obj)(); return has(obj, v1beta1.ConditionPaused) }).Should(BeFalse())
	})

	It("acknowledges a requested reconcile after a fresh read", func(ctx context.Context) {
		obj := shown.trustedCA(newCA())
		apply(ctx, obj, beReady(""))
		for _, token := range []string{"2026-11-21T12:00:00Z", "1"} { // tokens have no order
			lists := shown.lists.Load()
			annotate(ctx, obj, v1beta1.AnnotationReconcileRequestedAt, token)
			Eventually(func() string { _ = readiness(ctx, obj)(); return obj.Status.LastHandledReconcileAt }).Should(Equal(token))
			Expect(shown.lists.Load()).To(BeNumerically(">", lists))
			Expect(readiness(ctx, obj)()).To(beReady("re-read"))
		}
	})

	It("costs two writes to the cluster and one to the key server", func(ctx context.Context) {
		obj := shown.trustedCA(newCA())
		watching, err := client.NewWithWatch(restConfig, client.Options{Scheme: controlplane.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		w, err := watching.Watch(ctx, &v1beta1.TrustedCAList{}, client.InNamespace("default"))
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		var writes atomic.Int32
		name := obj.Name
		go func() {
			defer GinkgoRecover()
			for e := range w.ResultChan() {
				if o, ok := e.Object.(*v1beta1.TrustedCA); ok && o.Name == name && e.Type == watch.Modified {
					writes.Add(1)
				}
			}
		}()
		adds := shown.adds.Load()
		apply(ctx, obj, beReady(""))
		Eventually(writes.Load).Should(BeEquivalentTo(2), "the finalizer and the status")
		Consistently(writes.Load).Should(BeEquivalentTo(2))
		Expect(shown.adds.Load()).To(Equal(adds + 1))
	})
})

func fromConfigMap(name string) func(*v1beta1.TrustedCA) {
	return func(o *v1beta1.TrustedCA) {
		o.Spec.Certificate = v1beta1.CertificateSource{ConfigMapKeyRef: &v1beta1.LocalKeyReference{Name: name, Key: "ca.crt"}}
	}
}

func configMap(name, key, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{key: value},
	}
}

func has(obj reconcile.Object, condition string) bool {
	_, status := obj.Managed()
	for _, c := range status.Conditions {
		if c.Type == condition {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

package controllers

import (
	"context"
	"errors"
	"time"

	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	apiclient "github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

var _ = Describe("a key server that", func() {
	It("swallows a write never makes an object ready, and is not flooded", func(ctx context.Context) {
		s := newStage(ctx)
		s.onAdd(func(context.Context, API, []byte) (schema.TrustedCAAdded, error) {
			return schema.TrustedCAAdded{ListCountBefore: 1, ListCountAfter: 1},
				&apiclient.Error{Status: 409, Code: "NOT_SAVED", Detail: "a fresh read does not contain it"}
		})
		obj := s.trustedCA(newCA())
		apply(ctx, obj, beUnready(v1alpha1.ReasonNotVerified, "NOT_SAVED: a fresh read does not contain it"))
		Expect(meta.IsStatusConditionFalse(obj.Status.Conditions, v1alpha1.ConditionVerified)).To(BeTrue())
		Expect(obj.Status.CertificateID).To(BeEmpty())
		for range 20 { // woken by unrelated changes
			_, err := s.admin().AddTrustedCA(ctx, newCA().der)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(s.adds.Load()).To(BeNumerically("<", 8))
		Eventually(func() bool { _ = readiness(ctx, obj)(); return has(obj, v1alpha1.ConditionStalled) }).Should(BeTrue())

		s.onAdd(nil)
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		Expect(has(obj, v1alpha1.ConditionStalled)).To(BeFalse())
	})

	It("claims success without evidence is not believed", func(ctx context.Context) {
		s := newStage(ctx)
		s.onAdd(func(context.Context, API, []byte) (schema.TrustedCAAdded, error) {
			return schema.TrustedCAAdded{Saved: true, MatchedBy: "certificate-body"}, nil
		})
		obj := s.trustedCA(newCA())
		apply(ctx, obj, beUnready(v1alpha1.ReasonNotVerified, "without the certificate as read back"))
	})

	It("reads back another certificate is not believed", func(ctx context.Context) {
		s := newStage(ctx)
		s.onAdd(func(ctx context.Context, real API, _ []byte) (schema.TrustedCAAdded, error) {
			return real.AddTrustedCA(ctx, newCA().der)
		})
		obj := s.trustedCA(newCA())
		apply(ctx, obj, beUnready(v1alpha1.ReasonNotVerified, "another one than was sent"))
	})

	It("loses its reply after the write took effect keeps what was created ours", func(ctx context.Context) {
		s := newStage(ctx)
		lost := false
		s.onAdd(func(ctx context.Context, real API, der []byte) (schema.TrustedCAAdded, error) {
			added, err := real.AddTrustedCA(ctx, der)
			if !lost && err == nil {
				lost = true
				return schema.TrustedCAAdded{}, &apiclient.NetworkError{Sent: true, Err: errors.New("connection reset")}
			}
			return added, err
		})
		ca := newCA()
		obj := s.trustedCA(ca, func(o *v1alpha1.TrustedCA) { o.Spec.AdoptionPolicy = v1alpha1.AdoptNever })
		Expect(kube.Create(ctx, obj)).To(Succeed())
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		Expect(obj.Status.Provenance).To(Equal(v1alpha1.Created))
		Expect(s.adds.Load()).To(BeEquivalentTo(1), "the write was repeated")
		remove(ctx, obj)
		Expect(s.trusted(ctx)).NotTo(HaveKey(ca.fingerprint))
	})

	DescribeTable("somebody else was faster with leaves the decision to the adoption policy",
		func(ctx context.Context, policy v1alpha1.AdoptionPolicy, comes OmegaMatcher, provenance v1alpha1.Provenance) {
			s := newStage(ctx)
			s.onAdd(func(ctx context.Context, real API, der []byte) (schema.TrustedCAAdded, error) {
				if _, err := s.admin().AddTrustedCA(ctx, der); err != nil && apiclient.CodeOf(err) != "ALREADY_TRUSTED" {
					return schema.TrustedCAAdded{}, err
				}
				return real.AddTrustedCA(ctx, der)
			})
			ca := newCA()
			obj := s.trustedCA(ca, func(o *v1alpha1.TrustedCA) { o.Spec.AdoptionPolicy = policy })
			Expect(kube.Create(ctx, obj)).To(Succeed())
			Eventually(readiness(ctx, obj)).Should(comes)
			Expect(obj.Status.Provenance).To(Equal(provenance))
			remove(ctx, obj)
			Expect(s.trusted(ctx)).To(HaveKey(ca.fingerprint), "what somebody else added was deleted")
		},
		Entry("Never", v1alpha1.AdoptNever, beUnready(v1alpha1.ReasonConflict, "adoptionPolicy is Never"), v1alpha1.Provenance("")),
		Entry("IfIdentical", v1alpha1.AdoptIfIdentical, beReady("took over"), v1alpha1.Adopted),
	)

	It("has no change feed is polled, and says so", func(ctx context.Context) {
		s := newStage(ctx, func(ks *v1alpha1.KeyServer) {
			m := meddlerOf(ks.Spec.URL)
			m.onChanges(func(ctx context.Context, _ API, after int64, wait time.Duration) (schema.ChangePage, error) {
				return withoutRoutes().Changes(ctx, after, wait)
			})
		})
		ks := &v1alpha1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		feed := meta.FindStatusCondition(ks.Status.Conditions, v1alpha1.ConditionChangeFeed)
		Expect(feed).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", string(v1alpha1.ReasonUnsupported)))))

		ca := newCA()
		obj := s.trustedCA(ca, func(o *v1alpha1.TrustedCA) { o.Spec.ResyncInterval = &metav1.Duration{Duration: 5 * time.Second} })
		apply(ctx, obj, beReady(""))
		_, err := s.admin().RemoveTrustedCA(ctx, obj.Status.CertificateID)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() map[string]string { return s.trusted(ctx) }).Should(HaveKey(ca.fingerprint))
	})

	It("forgets its change feed has everything read anew", func(ctx context.Context) {
		s := newStage(ctx)
		ca := newCA()
		obj := s.trustedCA(ca)
		apply(ctx, obj, beReady(""))
		// The removal is not reported, only that the cursor is too old.
		hidden := false
		s.onChanges(func(ctx context.Context, real API, after int64, wait time.Duration) (schema.ChangePage, error) {
			page, err := real.Changes(ctx, after, wait)
			if err == nil && len(page.Changes) > 0 && !hidden {
				hidden = true
				return schema.ChangePage{Cursor: page.Cursor, Reset: true}, nil
			}
			return page, err
		})
		// The long poll under way still goes to the real one.
		annotate(ctx, &v1alpha1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, v1alpha1.AnnotationReconcileRequestedAt, "1")
		Eventually(func() string {
			ks := &v1alpha1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
			_ = readiness(ctx, ks)()
			return ks.Status.LastHandledReconcileAt
		}).Should(Equal("1"))
		_, err := s.admin().RemoveTrustedCA(ctx, obj.Status.CertificateID)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() map[string]string { return s.trusted(ctx) }).Should(HaveKey(ca.fingerprint))
	})
})

// withoutRoutes returns a real client of a service that has none of the routes.
func withoutRoutes() *apiclient.Client {
	srv := httptest.NewServer(http.NotFoundHandler())
	DeferCleanup(srv.Close)
	c, err := apiclient.New(apiclient.Options{
		BaseURL: srv.URL, MaxRetries: -1,
		Credentials: apiclient.PasswordCredentials("nobody", func(context.Context) (string, error) { return "", nil }),
	})
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("removing the custom resource definition", Serial, func() {
	It("abandons every object and deletes no trust", func(ctx context.Context) {
		was := kube
		defer func() { kube = was }()
		cfg, c := startControlPlane()
		kube = c
		startManager(cfg)
		s := newStage(ctx)
		ca := newCA()
		obj := s.trustedCA(ca, func(o *v1alpha1.TrustedCA) { o.Spec.DeletionPolicy = v1alpha1.DeleteExternal })
		apply(ctx, obj, beReady(""))

		scheme := newScheme()
		Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
		crds, err := client.New(cfg, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "trustedcas.trust.keyserver.dev"}}
		Expect(crds.Delete(ctx, crd)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(crds.Get(ctx, client.ObjectKeyFromObject(crd), crd))
		}).Should(BeTrue(), "the definition hangs on its objects' finalizers")
		Consistently(func() map[string]string { return s.trusted(ctx) }).Should(HaveKey(ca.fingerprint))
		Expect(s.removes.Load()).To(BeZero())
	})
})

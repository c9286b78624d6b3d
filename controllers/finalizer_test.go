package controllers

import (
	"context"
	"crypto/rand"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// kubectl replace and Argo CD's Replace replace the entire object, and so remove the manager's finalizer and
// annotations.
var _ = Describe("A finalizer that somebody removes", func() {
	finalizers := func(ctx context.Context, obj client.Object) func() []string {
		return func() []string {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				return []string{err.Error()}
			}
			return obj.GetFinalizers()
		}
	}

	It("is restored, and the deletion deletes what was made", func(ctx context.Context) {
		s := newStage(ctx)
		ca := newCA()
		obj := s.trustedCA(ca)
		manifest := obj.DeepCopy()
		apply(ctx, obj, beReady("created"))
		Eventually(func() error {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			replaced := manifest.DeepCopy()
			replaced.ResourceVersion, replaced.UID = obj.ResourceVersion, obj.UID
			return kube.Update(ctx, replaced)
		}).Should(Succeed())
		Eventually(finalizers(ctx, obj)).Should(ConsistOf(v1beta1.FinalizerExternal))

		By("also on an object that is paused")
		annotate(ctx, obj, v1beta1.AnnotationPaused, "true")
		Eventually(readiness(ctx, obj)).Should(HaveField("Reason", v1beta1.ReasonPaused))
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Finalizers = nil })
		Eventually(finalizers(ctx, obj)).Should(ConsistOf(v1beta1.FinalizerExternal))
		annotate(ctx, obj, v1beta1.AnnotationPaused, "")

		remove(ctx, obj)
		Expect(s.trusted(ctx)).NotTo(HaveKey(ca.fingerprint))

		By("and on a KeyServer")
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		edit(ctx, ks, func(o *v1beta1.KeyServer) { o.Finalizers = nil })
		Eventually(finalizers(ctx, ks)).Should(ConsistOf(v1beta1.FinalizerInUse))
	})

	It("and a deletion before that, are found out by the owner mark", func(ctx context.Context) {
		s := newStage(ctx)
		ca := newCA()
		obj := s.trustedCA(ca)
		apply(ctx, obj, beReady("created"))
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		left := func() *metav1.Condition {
			token := rand.Text()
			annotate(ctx, ks, v1beta1.AnnotationReconcileRequestedAt, token)
			Eventually(func() string { _ = readiness(ctx, ks)(); return ks.Status.LastHandledReconcileAt }).Should(Equal(token))
			return meta.FindStatusCondition(ks.Status.Conditions, v1beta1.ConditionLeftBehind)
		}
		Expect(left()).To(BeNil())
		vanish(ctx, obj)
		Expect(s.trusted(ctx)).To(HaveKey(ca.fingerprint))
		Eventually(left).Should(And(HaveField("Status", metav1.ConditionTrue), HaveField("Message", ContainSubstring("TrustedCA default/"+obj.Name+" (id "))))
		Eventually(eventsAbout(ctx, ks)).Should(ContainElement("LeftBehind"))

		By("until the object is there again")
		apply(ctx, obj, beReady(""))
		Eventually(left).Should(BeNil())
		remove(ctx, obj)
		Expect(s.trusted(ctx)).NotTo(HaveKey(ca.fingerprint))
	})
})

package controllers

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

func publishing(name string, in *v1beta1.GrantedNamespaces) func(*v1beta1.TrustedCA) {
	return func(o *v1beta1.TrustedCA) {
		o.Spec.Publish = &v1beta1.TrustPublication{ConfigMap: &v1beta1.PublishedConfigMap{Name: name, Namespaces: in}}
	}
}

func publishingBundle(name string) func(*v1beta1.TrustedCA) {
	return func(o *v1beta1.TrustedCA) {
		o.Spec.Publish = &v1beta1.TrustPublication{ClusterTrustBundle: &v1beta1.PublishedBundle{Name: name}}
	}
}

// published returns the content of a ConfigMap, or an error text.
func published(ctx context.Context, namespace, name string) func() string {
	return func() string {
		m := &corev1.ConfigMap{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, m); err != nil {
			return err.Error()
		}
		return m.Data["ca.crt"]
	}
}

func newNamespace(ctx context.Context, labels map[string]string) string {
	GinkgoHelper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("publish-%d", objects.Add(1)), Labels: labels}}
	Expect(kube.Create(ctx, n)).To(Succeed())
	return n.Name
}

var _ = Describe("TrustedCA publish", func() {
	name := func() string { return fmt.Sprintf("published-%d", objects.Add(1)) }

	It("writes nothing outside of its namespace that no grant covers", func(ctx context.Context) {
		s := newStage(ctx, func(ks *v1beta1.KeyServer) { ks.Spec.Grants[0].Names = []string{"CN=*"} })
		other, to := newNamespace(ctx, nil), name()
		obj := s.trustedCA(newCA(), publishing(to, &v1beta1.GrantedNamespaces{Names: []string{"default", other}}))
		apply(ctx, obj, beUnready(v1beta1.ReasonAccessDenied, fmt.Sprintf("lacks the name %q", "publish/"+other+"/"+to)))
		Expect(published(ctx, "default", to)()).To(ContainSubstring("not found"))
		bundle := s.trustedCA(newCA(), publishingBundle(""))
		apply(ctx, bundle, beUnready(v1beta1.ReasonAccessDenied, `lacks the name "publish/clusterTrustBundle/default.`+bundle.Name+`"`))
		own := s.trustedCA(newCA(), publishing(to, nil))
		apply(ctx, own, beReady(""))
	})

	It("leaves alone what somebody else has made", func(ctx context.Context) {
		to := name()
		Expect(kube.Create(ctx, configMap(to, "ca.crt", "mine"))).To(Succeed())
		obj := shown.trustedCA(newCA(), publishing(to, nil))
		apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "ConfigMap default/"+to+" exists already and another client created it"))
		remove(ctx, obj)
		Expect(published(ctx, "default", to)()).To(Equal("mine"))
	})

	It("leaves alone what another object publishes, until that object is gone", func(ctx context.Context) {
		to := name()
		first := shown.trustedCA(newCA(), publishing(to, nil))
		apply(ctx, first, beReady(""))
		content := published(ctx, "default", to)()
		second := shown.trustedCA(newCA(), publishing(to, nil))
		apply(ctx, second, beUnready(v1beta1.ReasonConflict,
			fmt.Sprintf("ConfigMap default/%s exists already and TrustedCA/default/%s publishes it", to, first.Name)))
		Expect(published(ctx, "default", to)()).To(Equal(content))
		remove(ctx, first)
		Eventually(readiness(ctx, second)).Should(beReady(""))
		Expect(published(ctx, "default", to)()).NotTo(Equal(content))
		remove(ctx, second)
	})

	It("says that the API server serves no ClusterTrustBundles", func(ctx context.Context) {
		obj := shown.trustedCA(newCA(), publishingBundle(""))
		apply(ctx, obj, beUnready(v1beta1.ReasonUnsupported, "ClusterTrustBundle default."+obj.Name+" is not published: this API server does not serve"))
	})

	It("says which namespace does not exist", func(ctx context.Context) {
		obj := shown.trustedCA(newCA(), publishing(name(), &v1beta1.GrantedNamespaces{Names: []string{"nowhere"}}))
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, `namespaces "nowhere" not found`))
	})

	It("has both certificates for as long as both are trusted, and goes with the object", func(ctx context.Context) {
		old, fresh, to := newCA(), newCA(), name()
		obj := shown.trustedCA(old, publishing(to, nil), func(o *v1beta1.TrustedCA) {
			o.Spec.Rotation.Overlap = &metav1.Duration{Duration: 5 * time.Second}
		})
		apply(ctx, obj, beReady("created"))
		Expect(published(ctx, "default", to)()).To(Equal(old.pem))
		Expect(obj.Status.Published).To(ConsistOf(v1beta1.PublishedReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: to}))

		By("correcting what somebody changes")
		edit(ctx, configMap(to, "", ""), func(m *corev1.ConfigMap) { m.Data["ca.crt"] = "another" })
		Eventually(published(ctx, "default", to)).Should(Equal(old.pem))

		By("rotating")
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Certificate.Inline = &fresh.pem })
		Eventually(published(ctx, "default", to)).Should(Equal(fresh.pem + old.pem))
		Eventually(published(ctx, "default", to)).Should(Equal(fresh.pem))
		Expect(shown.trusted(ctx)).NotTo(HaveKey(old.fingerprint))
		remove(ctx, obj)
		Expect(published(ctx, "default", to)()).To(ContainSubstring("not found"))
	})

	It("follows the labels of namespaces", func(ctx context.Context) {
		label := map[string]string{"mesh": fmt.Sprint(objects.Add(1))}
		ca, to, first := newCA(), name(), newNamespace(ctx, label)
		obj := shown.trustedCA(ca, publishing(to, &v1beta1.GrantedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: label}}))
		apply(ctx, obj, beReady("created"))
		Expect(published(ctx, first, to)()).To(Equal(ca.pem))
		Expect(published(ctx, "default", to)()).To(ContainSubstring("not found"))
		second := newNamespace(ctx, label)
		Eventually(published(ctx, second, to)).Should(Equal(ca.pem))
		edit(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: first}}, func(n *corev1.Namespace) { delete(n.Labels, "mesh") })
		Eventually(published(ctx, first, to)).Should(ContainSubstring("not found"))
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Publish = nil })
		Eventually(published(ctx, second, to)).Should(ContainSubstring("not found"))
		Eventually(readiness(ctx, obj)).Should(beReady(""))
	})

	It("is a ClusterTrustBundle where the API server has them", func(ctx context.Context) {
		outerConfig, outerKube := restConfig, kube
		DeferCleanup(func() { restConfig, kube = outerConfig, outerKube })
		environment := controlplane.Start(GinkgoTB(), func(e *envtest.Environment) {
			e.ControlPlane.GetAPIServer().Configure().Append("feature-gates", "ClusterTrustBundle=true").Append("runtime-config", "certificates.k8s.io/v1beta1/clustertrustbundles=true")
		})
		restConfig = environment.Config
		restConfig.QPS, restConfig.Burst = 200, 400
		var err error
		kube, err = client.New(restConfig, client.Options{Scheme: controlplane.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		startManager(restConfig)
		s := newStage(ctx)
		bundle := func(name string) func() string {
			return func() string {
				b := &certificatesv1beta1.ClusterTrustBundle{}
				if err := kube.Get(ctx, client.ObjectKey{Name: name}, b); err != nil {
					return err.Error()
				}
				return b.Spec.TrustBundle
			}
		}
		old, fresh := newCA(), newCA()
		obj := s.trustedCA(old, publishingBundle("partners"))
		apply(ctx, obj, beReady("created"))
		Expect(bundle("partners")()).To(Equal(old.pem))
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Certificate.Inline = &fresh.pem })
		Eventually(bundle("partners")).Should(Equal(fresh.pem + old.pem))
		remove(ctx, obj)
		Expect(bundle("partners")()).To(ContainSubstring("not found"))
	})
})

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// managerAccount is the user name of the manager in the released manifests.
const managerAccount = "system:serviceaccount:keyserver-system:keyserver-manager"

// shippedRole reads a ClusterRole of config/rbac. It adds the name prefix like kustomize.
func shippedRole(file string) *rbacv1.ClusterRole {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("..", "config", "rbac", file))
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.ClusterRole{}
	Expect(utilyaml.Unmarshal(text, role)).To(Succeed())
	role.Name = "keyserver-" + role.Name
	return role
}

func boundTo(role string) (rbacv1.RoleRef, []rbacv1.Subject) {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		[]rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: managerAccount}}
}

// bind creates the RoleBinding that config/access/secrets creates in a namespace.
func bind(ctx context.Context, namespace string) *rbacv1.RoleBinding {
	GinkgoHelper()
	b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keyserver-manager-secrets"}}
	b.RoleRef, b.Subjects = boundTo("keyserver-manager-secrets")
	Expect(kube.Create(ctx, b)).To(Succeed())
	return b
}

// watches counts the requests of a manager to watch the Secrets of entire namespaces.
type watches struct {
	next http.RoundTripper
	mu   sync.Mutex
	open map[string]int // open watches by path
}

// RoundTrip implements http.RoundTripper.
func (w *watches) RoundTrip(r *http.Request) (*http.Response, error) {
	path := r.URL.Path
	if !strings.HasSuffix(path, "/secrets") || r.URL.Query().Get("watch") == "" {
		return w.next.RoundTrip(r)
	}
	w.count(path, 1)
	answer, err := w.next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		w.count(path, -1)
		return answer, err
	}
	context.AfterFunc(r.Context(), func() { w.count(path, -1) })
	return answer, err
}

func (w *watches) count(path string, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[path] += by; w.open[path] == 0 {
		delete(w.open, path)
	}
}

func (w *watches) namespaces() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for path := range w.open {
		found = append(found, strings.TrimSuffix(strings.TrimPrefix(path, "/api/v1/namespaces/"), "/secrets"))
	}
	slices.Sort(found)
	return found
}

var _ = Describe("a manager with the rights that are shipped", Ordered, func() {
	var s *stage
	var open *watches
	var as *rest.Config

	BeforeAll(func(ctx context.Context) {
		outerConfig, outerKube := restConfig, kube
		DeferCleanup(func() { restConfig, kube = outerConfig, outerKube })
		environment := controlplane.Start(GinkgoTB(), func(e *envtest.Environment) {
			e.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "RBAC")
		})
		restConfig = environment.Config
		restConfig.QPS, restConfig.Burst = 200, 400
		var err error
		kube, err = client.New(restConfig, client.Options{Scheme: controlplane.Scheme()})
		Expect(err).NotTo(HaveOccurred())

		role := shippedRole("role.yaml")
		Expect(kube.Create(ctx, role)).To(Succeed())
		Expect(kube.Create(ctx, shippedRole("secrets_role.yaml"))).To(Succeed())
		everywhere := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "keyserver-manager"}}
		everywhere.RoleRef, everywhere.Subjects = boundTo(role.Name)
		Expect(kube.Create(ctx, everywhere)).To(Succeed())
		for _, name := range []string{"payments", "secretive", "closed"} {
			Expect(kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		}

		as = rest.CopyConfig(restConfig)
		as.Impersonate = rest.ImpersonationConfig{UserName: managerAccount}
		managers := rest.CopyConfig(as)
		open = &watches{open: map[string]int{}}
		managers.Wrap(func(next http.RoundTripper) http.RoundTripper { open.next = next; return open })
		startManager(managers)
		s = newStage(ctx, func(ks *v1beta1.KeyServer) {
			ks.Spec.Grants[0].Namespaces.Names = []string{"payments", "secretive", "closed"}
		})
	})

	fromSecret := func(namespace, name string) func(*v1beta1.TrustedCA) {
		return func(o *v1beta1.TrustedCA) {
			o.Namespace = namespace
			o.Spec.Certificate = v1beta1.CertificateSource{SecretKeyRef: &v1beta1.LocalKeyReference{Name: name, Key: "ca.crt"}}
		}
	}
	secret := func(namespace, name string, ca testCA) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: map[string]string{"ca.crt": ca.pem}}
	}
	reconnect := func(ctx context.Context) *v1beta1.KeyServer {
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		annotate(ctx, ks, v1beta1.AnnotationReconcileRequestedAt, fmt.Sprint(objects.Add(1)))
		return ks
	}

	It("reads no Secret where nobody has let it, says who can, and goes on by itself", func(ctx context.Context) {
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonDependencyNotReady,
			`Secret kube-system/`+s.name+` cannot be read: the manager has no permission to read Secrets in namespace "kube-system"; there, bind the ClusterRole keyserver-manager-secrets`))
		bind(ctx, "kube-system")
		Eventually(readiness(ctx, ks), 90*time.Second).Should(beReady(""))
	})

	It("says so of an object, and not of one in a namespace where it may", func(ctx context.Context) {
		Eventually(readiness(ctx, reconnect(ctx))).Should(beReady(""))
		ca, hidden := newCA(), newCA()
		Expect(kube.Create(ctx, secret("payments", "ca", ca))).To(Succeed())
		Expect(kube.Create(ctx, secret("secretive", "ca", hidden))).To(Succeed())
		bind(ctx, "payments")
		let, kept := s.trustedCA(ca, fromSecret("payments", "ca")), s.trustedCA(hidden, fromSecret("secretive", "ca"))
		apply(ctx, let, beReady("created"))
		apply(ctx, kept, beUnready(v1beta1.ReasonDependencyNotReady, `Secret secretive/ca cannot be read: the manager has no permission to read Secrets in namespace "secretive"`))
		Eventually(open.namespaces).Should(Equal([]string{"kube-system", "payments"}))

		By("asking the API server itself")
		asManager, err := client.New(as, client.Options{Scheme: controlplane.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		Expect(apierrors.IsForbidden(asManager.Get(ctx, client.ObjectKey{Namespace: "secretive", Name: "ca"}, &corev1.Secret{}))).To(BeTrue())
		Expect(apierrors.IsForbidden(asManager.List(ctx, &corev1.SecretList{}))).To(BeTrue())

		By("seeing a change at once where it may")
		fresh := newCA()
		edit(ctx, secret("payments", "ca", ca), func(o *corev1.Secret) { o.Data["ca.crt"] = []byte(fresh.pem) })
		Eventually(func() map[string]string { return s.trusted(ctx) }, 10*time.Second).Should(HaveKey(fresh.fingerprint))

		By("beginning to watch within a minute of being let")
		binding := bind(ctx, "secretive")
		Eventually(readiness(ctx, kept), 90*time.Second).Should(beReady("created"))
		Eventually(open.namespaces, 90*time.Second).Should(Equal([]string{"kube-system", "payments", "secretive"}))

		By("ending what nothing refers to")
		remove(ctx, let)
		Eventually(open.namespaces).Should(Equal([]string{"kube-system", "secretive"}))

		By("being shut out again")
		Expect(kube.Delete(ctx, binding)).To(Succeed())
		edit(ctx, secret("secretive", "ca", hidden), func(o *corev1.Secret) { o.Data["other"] = []byte("x") })
		Eventually(readiness(ctx, kept)).Should(beUnready(v1beta1.ReasonDependencyNotReady, "cannot be read"))
	})

	It("says that a Secret does not exist only where it may know", func(ctx context.Context) {
		Eventually(readiness(ctx, reconnect(ctx))).Should(beReady(""))
		there, hidden := s.trustedCA(newCA(), fromSecret("payments", "absent")), s.trustedCA(newCA(), fromSecret("closed", "absent"))
		apply(ctx, there, beUnready(v1beta1.ReasonDependencyNotReady, "Secret payments/absent does not exist"))
		apply(ctx, hidden, beUnready(v1beta1.ReasonDependencyNotReady, "Secret closed/absent cannot be read"))
		ca := newCA()
		Expect(kube.Create(ctx, secret("payments", "absent", ca))).To(Succeed())
		Eventually(readiness(ctx, there), 10*time.Second).Should(beReady("created"))
	})

	It("needs no more than to get the one Secret, where somebody can wait for the next look", func(ctx context.Context) {
		Eventually(readiness(ctx, reconnect(ctx))).Should(beReady(""))
		one := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: "closed", Name: "one-secret"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}, Verbs: []string{"get"}}},
		}
		Expect(kube.Create(ctx, one)).To(Succeed())
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "closed", Name: "one-secret"}}
		b.RoleRef, b.Subjects = boundTo(one.Name)
		b.RoleRef.Kind = "Role"
		Expect(kube.Create(ctx, b)).To(Succeed())
		ca, fresh := newCA(), newCA()
		Expect(kube.Create(ctx, secret("closed", "one", ca))).To(Succeed())
		obj := s.trustedCA(ca, fromSecret("closed", "one"), func(o *v1beta1.TrustedCA) {
			o.Spec.ResyncInterval = &metav1.Duration{Duration: 5 * time.Second}
		})
		apply(ctx, obj, beReady("created"))
		edit(ctx, secret("closed", "one", ca), func(o *corev1.Secret) { o.Data["ca.crt"] = []byte(fresh.pem) })
		Eventually(func() map[string]string { return s.trusted(ctx) }).Should(HaveKey(fresh.fingerprint))
		Expect(open.namespaces()).NotTo(ContainElement("closed"))
	})
})

package keyservertest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	manifests "github.com/keyserver-operator/keyserver-operator/config"
	"github.com/keyserver-operator/keyserver-operator/controllers"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

const pollInterval = 20 * time.Millisecond

// patience is the time limit of StartOperator, CreateKeyServer and the cleanup. Tests shorten it.
var patience = time.Minute

// CRDs returns the definitions of the custom resources, for the field CRDs of envtest.Environment. The caller may
// change them.
func CRDs() []*apiextensionsv1.CustomResourceDefinition {
	crds, err := manifests.CRDs()
	if err != nil {
		panic(err) // they are embedded in this package
	}
	return crds
}

// StartOperator installs the CRDs, and runs the manager until the test ends. It returns when the manager has read all
// objects. The control plane must belong to the test: the manager works on all of its objects, and the CRDs remain.
// Only one manager may run for each control plane. Parallel tests that share one must be subtests of the caller.
//
// The manager uses the credentials of cluster, without client-side rate limits. It logs to the logger of
// ctrl.SetLogger. It has no leader election, and serves neither metrics nor probes.
func StartOperator(t testing.TB, cluster *rest.Config) {
	t.Helper()
	if _, runs := managedHosts.LoadOrStore(cluster.Host, true); runs {
		t.Fatalf("a manager already runs for the control plane %s; call StartOperator once, in the parent of the tests", cluster.Host)
	}
	t.Cleanup(func() { managedHosts.Delete(cluster.Host) })
	if _, err := envtest.InstallCRDs(cluster, envtest.CRDInstallOptions{CRDs: CRDs(), MaxTime: patience}); err != nil {
		t.Fatalf("install the custom resource definitions: %v", err)
	}
	unlimited := rest.CopyConfig(cluster)
	unlimited.QPS = -1
	unlimited.Wrap(func(next http.RoundTripper) http.RoundTripper { return eofOnCancel{next} })
	manyInOneProcess, watchErr := true, atomic.Pointer[error]{}
	mgr, err := ctrl.NewManager(unlimited, ctrl.Options{
		Scheme:     scheme(),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &manyInOneProcess},
		Cache: cache.Options{DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			watchErr.Store(&err)
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		}},
	})
	if err != nil {
		t.Fatalf("create the manager: %v", err)
	}
	if err := controllers.Setup(mgr, controllers.Options{ClusterName: "test"}); err != nil {
		t.Fatalf("set up the controllers: %v", err)
	}
	started := make(chan struct{})
	if err := mgr.Add(manager.RunnableFunc(func(context.Context) error { close(started); return nil })); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context())) // t.Context ends before the cleanups
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("stop the manager: %v", err)
			}
		case <-time.After(patience): // the manager of controller-runtime does not stop before its caches are filled
			t.Errorf("the manager did not stop within %s", patience)
		}
		utilnet.CloseIdleConnectionsFor(mgr.GetHTTPClient().Transport)
	})
	select {
	case <-started:
	case err := <-ended:
		ended <- nil
		t.Fatalf("start the manager: %v", err)
	case <-time.After(patience):
		cause := "no watch has failed"
		if last := watchErr.Load(); last != nil {
			cause = (*last).Error()
		}
		t.Fatalf("the manager has not read all objects within %s: %s", patience, cause)
	}
}

// managedHosts has the addresses of the control planes with a running manager.
var managedHosts sync.Map

// credentialsNamespace is a namespace that each control plane has.
const credentialsNamespace = "kube-system"

// CreateKeyServer creates a KeyServer object for the key server, and a Secret with the administrator's credentials in
// the namespace kube-system, both of the given name. The grant of the KeyServer allows everything to objects in the
// given namespaces, or in all namespaces if the caller names none. Call StartOperator first: CreateKeyServer waits
// until the KeyServer is Ready.
//
// At the end of the test, both objects are deleted. The test must delete its other objects before that, because they
// need the KeyServer. Cleanups that are registered after this call run first.
func (s *Server) CreateKeyServer(t testing.TB, cluster *rest.Config, name string, namespaces ...string) *v1beta1.KeyServer {
	t.Helper()
	kube, err := client.New(cluster, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatalf("connect to the control plane: %v", err)
	}
	to := v1beta1.GrantedNamespaces{Names: namespaces}
	if len(namespaces) == 0 {
		to.Selector = &metav1.LabelSelector{}
	}
	ca := string(s.ca)
	object := &v1beta1.KeyServer{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1beta1.AnnotationAbandon: "true"}},
		Spec: v1beta1.KeyServerSpec{
			URL: s.URL(), CABundle: &v1beta1.CABundle{Inline: &ca},
			Credentials: v1beta1.KeyServerCredentials{Administrator: v1beta1.AdministratorCredential{
				SecretRef: &v1beta1.CredentialSecretReference{Namespace: credentialsNamespace, Name: name},
			}},
			Grants: []v1beta1.Grant{v1beta1.GrantAll("test", to)},
		},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: credentialsNamespace, Name: name}, Type: corev1.SecretTypeBasicAuth,
		StringData: map[string]string{corev1.BasicAuthUsernameKey: testserver.AdminName, corev1.BasicAuthPasswordKey: testserver.AdminPassword},
	}
	for _, o := range []client.Object{secret, object} {
		if err := kube.Create(t.Context(), o); meta.IsNoMatchError(err) {
			t.Fatalf("create the %T %q: %v; call StartOperator first, which installs the CRDs", o, name, err)
		} else if err != nil {
			t.Fatalf("create the %T %q: %v", o, name, err)
		}
		t.Cleanup(func() { deleteObject(t, kube, o) })
	}
	waitReady(t, kube, object)
	return object
}

// deleteObject deletes an object, and waits until it is deleted. Only a running manager removes its finalizer.
func deleteObject(t testing.TB, kube client.Client, o client.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	err := kube.Delete(ctx, o)
	if err == nil {
		err = wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
			err := kube.Get(ctx, client.ObjectKeyFromObject(o), o)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
	if client.IgnoreNotFound(err) != nil {
		t.Errorf("delete the %T %q: %v", o, o.GetName(), err)
	}
}

// waitReady waits until a KeyServer is Ready, and fails the test with the message of the condition.
func waitReady(t testing.TB, kube client.Client, ks *v1beta1.KeyServer) {
	t.Helper()
	last := "the manager has not processed it; call StartOperator first"
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(ks), ks); err != nil {
			return false, err
		}
		ready := meta.FindStatusCondition(ks.Status.Conditions, v1beta1.ConditionReady)
		if ready == nil {
			return false, nil
		}
		last = ready.Message
		return ready.Status == metav1.ConditionTrue, nil
	})
	if err != nil {
		t.Fatalf("the KeyServer %q is not Ready: %s (%v)", ks.Name, strings.TrimSpace(last), err)
	}
}

// eofOnCancel ends the response body of a canceled request with io.EOF. With another error, controller-runtime would
// leak one goroutine for each watch of metadata: the watch would send the error to a channel that no goroutine reads.
type eofOnCancel struct{ http.RoundTripper }

// WrappedRoundTripper lets CloseIdleConnectionsFor find the transport.
func (q eofOnCancel) WrappedRoundTripper() http.RoundTripper { return q.RoundTripper }

func (q eofOnCancel) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := q.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = eofBody{resp.Body, r.Context()}
	}
	return resp, err
}

type eofBody struct {
	io.ReadCloser
	request context.Context //nolint:containedctx // Read checks if the request was canceled
}

func (b eofBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.request.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// scheme returns a scheme of the kinds of Kubernetes and of this project.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two types of the same name are a bug of this package
		}
	}
	return s
}

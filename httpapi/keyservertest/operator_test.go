package keyservertest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// cluster is the control plane of the tests; nil without KUBEBUILDER_ASSETS.
var cluster *rest.Config

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return m.Run()
	}
	environment := envtest.Environment{}
	var err error
	if cluster, err = environment.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = environment.Stop() }()
	return m.Run()
}

// TestStartOperator checks that the manager reconciles an object on the key server, ends with the test, and leaves
// neither objects of the test nor goroutines. Each run uses the same control plane and the same names.
func TestStartOperator(t *testing.T) {
	needsCluster(t)
	before := runtime.NumGoroutine()
	for n := range 3 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := Start(t)
			StartOperator(t, cluster)
			s.CreateKeyServer(t, cluster, "default", "default")
			declareRole(t, s)
		})
	}
	kube := kubeClient(t)
	for _, list := range []client.ObjectList{&v1beta1.KeyServerList{}, &v1beta1.RoleList{}} {
		if err := kube.List(t.Context(), list); err != nil || meta.LenList(list) > 0 {
			t.Errorf("after the tests: %+v, %v", list, err)
		}
	}
	utilnet.CloseIdleConnectionsFor(httpClient(t).Transport)
	checkGoroutines(t, before)
}

func needsCluster(t *testing.T) {
	t.Helper()
	if cluster == nil {
		t.Skip("KUBEBUILDER_ASSETS names no control plane; run make test-system, which builds one")
	}
}

// declareRole declares a role, and checks that the key server has it. At the end of the test, it deletes the role.
func declareRole(t *testing.T, s *Server) {
	kube := kubeClient(t)
	role := &v1beta1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "signer"},
		Spec:       v1beta1.RoleSpec{RoleName: ptr.To("Signer"), Operations: []string{"HMAC Data"}},
	}
	if err := kube.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteObject(t, kube, role) })
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		err := kube.Get(ctx, client.ObjectKeyFromObject(role), role)
		return meta.IsStatusConditionTrue(role.Status.Conditions, v1beta1.ConditionReady), err
	})
	if err != nil {
		t.Fatalf("%v: %+v", err, role.Status)
	}
	s.CreatePrincipal(t, "worker", "Signer")
}

// TestOperatorFails checks that a wrong use ends the test, with the cause in its message.
func TestOperatorFails(t *testing.T) {
	needsCluster(t)
	s := Start(t)
	StartOperator(t, cluster)
	s.CreateKeyServer(t, cluster, "taken")
	unreachable := &rest.Config{Host: "https://127.0.0.1:1"}
	unprivileged := rest.CopyConfig(cluster)
	unprivileged.Host = strings.Replace(unprivileged.Host, "127.0.0.1", "localhost", 1) // not the control plane that has a manager
	unprivileged.Impersonate.UserName, unprivileged.Impersonate.Groups = "nobody", []string{"installers"}
	allowCRDs(t)
	for name, c := range map[string]struct {
		do   func(t testing.TB)
		want string
	}{
		"a name in use":    {func(t testing.TB) { s.CreateKeyServer(t, cluster, "taken") }, `create the *v1.Secret "taken": `},
		"a wrong name":     {func(t testing.TB) { s.CreateKeyServer(t, cluster, "not DNS") }, `create the *v1.Secret "not DNS": `},
		"a second manager": {func(t testing.TB) { StartOperator(t, cluster) }, "a manager already runs for the control plane "},
		"no control plane": {func(t testing.TB) { StartOperator(t, unreachable) }, "install the custom resource definitions: "},
		"no rights":        {func(t testing.TB) { StartOperator(t, unprivileged) }, "the manager has not read all objects within "},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "no rights" {
				defer func(old time.Duration) { patience = old }(patience)
				patience = 2 * time.Second
			}
			if said := failure(t, c.do); !strings.HasPrefix(said, c.want) || name == "no rights" && !strings.Contains(said, "forbidden") {
				t.Errorf("the test fails with %q, want %q", said, c.want)
			}
		})
	}
}

// allowCRDs lets the group installers manage CRDs, and nothing else.
func allowCRDs(t *testing.T) {
	t.Helper()
	kube := kubeClient(t)
	rule := rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "installers"}, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "installers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "installers"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "installers"}},
		},
	} {
		if err := kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWithoutOperator checks that the message of CreateKeyServer names StartOperator.
func TestWithoutOperator(t *testing.T) {
	needsCluster(t)
	defer func(old time.Duration) { patience = old }(patience)
	if _, err := envtest.InstallCRDs(cluster, envtest.CRDInstallOptions{CRDs: CRDs(), MaxTime: patience}); err != nil {
		t.Fatal(err)
	}
	s := Start(t)
	patience = time.Second
	said := failure(t, func(t testing.TB) { s.CreateKeyServer(t, cluster, "alone") })
	if !strings.Contains(said, "call StartOperator first") {
		t.Errorf("the test fails with %q", said)
	}
}

// TestCRDs checks that each call returns all definitions, in new objects.
func TestCRDs(t *testing.T) {
	first := CRDs()
	if len(first) != len(v1beta1.Kinds) {
		t.Errorf("%d definitions, want %d", len(first), len(v1beta1.Kinds))
	}
	first[0].Name = "changed"
	if CRDs()[0].Name == "changed" {
		t.Error("a change of the result changes later results")
	}
}

// httpClient returns a client with the transport that all clients of the control plane share.
func httpClient(t *testing.T) *http.Client {
	t.Helper()
	shared, err := rest.HTTPClientFor(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

func kubeClient(t *testing.T) client.Client {
	t.Helper()
	kube, err := client.New(cluster, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

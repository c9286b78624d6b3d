package keyservertest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// cluster is the control plane of the tests; nil without its programs.
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

// TestStartOperator checks that the manager reconciles an object on the key server, ends with the test, and leaves no
// object of the test. The second run uses the same control plane and the same names.
func TestStartOperator(t *testing.T) {
	if cluster == nil {
		t.Skip("KUBEBUILDER_ASSETS names no control plane; run make test-system, which builds one")
	}
	before := 0
	for n := range 2 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := Start(t)
			StartOperator(t, cluster)
			s.CreateKeyServer(t, cluster, "default", "default")
			declareRole(t, s)
		})
		if n == 0 {
			before = runtime.NumGoroutine() // includes connections to the control plane
		}
	}
	noMore(t, before)
	kube := kubeClient(t)
	for _, list := range []client.ObjectList{&v1beta1.KeyServerList{}, &v1beta1.RoleList{}} {
		if err := kube.List(t.Context(), list); err != nil || meta.LenList(list) > 0 {
			t.Errorf("after the tests: %+v, %v", list, err)
		}
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

// TestKeyServerWithoutOperator checks that the test fails with the remedy.
func TestCreateKeyServerFails(t *testing.T) {
	if cluster == nil {
		t.Skip("KUBEBUILDER_ASSETS names no control plane; run make test-system, which builds one")
	}
	StartOperator(t, cluster)
	s := Start(t)
	s.CreateKeyServer(t, cluster, "taken")
	for name, want := range map[string]string{
		"taken":   `create the *v1.Secret "taken": `,
		"not DNS": `create the *v1.Secret "not DNS": `,
	} {
		if said := failure(t, func(t testing.TB) { s.CreateKeyServer(t, cluster, name) }); len(said) < len(want) || said[:len(want)] != want {
			t.Errorf("a KeyServer %q fails with %q, want %q", name, said, want)
		}
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

func kubeClient(t *testing.T) client.Client {
	t.Helper()
	kube, err := client.New(cluster, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

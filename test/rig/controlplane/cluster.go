package controlplane

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Start runs a kube-apiserver with our custom resources until the test ends.
func Start(t testing.TB, change ...func(*envtest.Environment)) *envtest.Environment {
	t.Helper()
	Need(t)
	root, err := rig.Root()
	rig.Must(t, err)
	defined := func(e *envtest.Environment) {
		e.CRDDirectoryPaths, e.ErrorIfCRDPathMissing = []string{filepath.Join(root, "config", "crd", "bases")}, true
	}
	environment, err := Begin(append([]func(*envtest.Environment){defined}, change...)...)
	rig.Must(t, err)
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	return environment
}

// Begin runs a kube-apiserver without our custom resources, for use in TestMain. The caller must stop it.
func Begin(change ...func(*envtest.Environment)) (*envtest.Environment, error) {
	Quiet()
	environment := &envtest.Environment{ControlPlaneStartTimeout: rig.Patience, ControlPlaneStopTimeout: rig.Patience}
	for _, c := range change {
		c(environment)
	}
	_, err := environment.Start()
	return environment, err
}

// Quiet silences envtest and managers, which warn if no logger is set. It runs once, because two concurrent
// tests must not both set the logger.
var Quiet = sync.OnceFunc(func() { ctrl.SetLogger(logr.Discard()) })

// Scheme returns a scheme with the kinds of Kubernetes and ours, and those that more adds.
func Scheme(more ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range append(more, clientgoscheme.AddToScheme, v1beta1.AddToScheme) {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// Run runs a manager until the test ends. The manager stops before its kube-apiserver.
func Run(t testing.TB, manager ctrl.Manager) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(rig.Patience):
			t.Error("the manager does not stop")
		}
	})
}

// Ready reads one of our objects and returns its Ready condition. If it has none yet, the result is empty.
func Ready(ctx context.Context, kube client.Client, obj client.Object) (metav1.Condition, error) {
	if err := kube.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return metav1.Condition{}, err
	}
	if c := meta.FindStatusCondition(conditions(obj), v1beta1.ConditionReady); c != nil {
		return *c, nil
	}
	return metav1.Condition{}, nil
}

func conditions(obj client.Object) []metav1.Condition {
	switch o := obj.(type) {
	case *v1beta1.KeyServer:
		return o.Status.Conditions
	case interface {
		Managed() (*v1beta1.ManagedSpec, *v1beta1.ManagedStatus)
	}:
		_, status := o.Managed()
		return status.Conditions
	}
	return nil
}

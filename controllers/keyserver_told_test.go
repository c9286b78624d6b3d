package controllers

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// oneKeyServer is a fake cluster with one KeyServer. It stores the first status write, but loses its response.
type oneKeyServer struct {
	client.Client
	object *v1beta1.KeyServer
	lost   bool
}

func (c *oneKeyServer) Get(_ context.Context, _ client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	if ks, is := to.(*v1beta1.KeyServer); is {
		c.object.DeepCopyInto(ks)
	}
	return nil
}

func (c *oneKeyServer) Status() client.SubResourceWriter { return oneStatus{of: c} }

type oneStatus struct {
	client.SubResourceWriter
	of *oneKeyServer
}

func (s oneStatus) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	if ks, is := obj.(*v1beta1.KeyServer); is {
		ks.DeepCopyInto(s.of.object)
	}
	if !s.of.lost {
		s.of.lost = true
		return errors.New("the answer was lost")
	}
	return nil
}

// TestAChangedKeyServerIsToldOf checks that the objects of a changed KeyServer are notified exactly once, even if the
// response of the status write is lost.
func TestAChangedKeyServerIsToldOf(t *testing.T) {
	ks := &v1beta1.KeyServer{}
	ks.Name, ks.UID, ks.ResourceVersion, ks.Generation = "ks", "1", "1", 2
	ks.Annotations = map[string]string{v1beta1.AnnotationPaused: "true"} // prevents a connection
	ks.Status.ObservedGeneration = 1
	controllerutil.AddFinalizer(ks, v1beta1.FinalizerInUse)
	kube := &oneKeyServer{object: ks}
	registry := Options{}.registry(reconcile.Cluster{Client: kube, Live: kube, Recorder: &events.FakeRecorder{}}, nil, logr.Discard())
	told := 0
	registry.Connections.Listen(func(context.Context, connection.Notice) { told++ })
	r := newKeyServerReconciler(registry)
	pass := func() error {
		_, err := r.Reconcile(ctrl.LoggerInto(t.Context(), logr.Discard()), ctrl.Request{NamespacedName: types.NamespacedName{Name: "ks"}})
		return err
	}
	if err := pass(); err == nil {
		t.Fatal("the answer was not lost")
	}
	told = 0
	for range 2 {
		if err := pass(); err != nil {
			t.Fatal(err)
		}
	}
	if told != 1 {
		t.Errorf("its objects were told %d times", told)
	}
}

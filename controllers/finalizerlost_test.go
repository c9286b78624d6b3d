package controllers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// TestAFinalizerThatIsRemoved checks, in the simulated world without faults, that the manager restores a removed
// finalizer. If the object is deleted without its finalizer, the owner mark shows what it left behind.
func TestAFinalizerThatIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, false)
		w.faulty.Store(false)
		ctx, stop := context.WithCancel(ctrl.LoggerInto(t.Context(), logr.Discard()))
		registry := w.registry(t)
		loop := registry.Controllers[0]
		w.concerns = loop.Concerns()
		registry.Connections.Listen(w.hear)
		at := types.NamespacedName{Namespace: "default", Name: "role-0"}
		w.wake[at] = make(chan struct{}, 1)
		obj := &v1beta1.Role{}
		obj.Namespace, obj.Name, obj.UID = at.Namespace, at.Name, types.UID(at.Name)
		obj.Spec.KeyServerRef.Name, obj.Spec.ManagementPolicy, obj.Spec.AdoptionPolicy = "ks", v1beta1.Manage, v1beta1.AdoptAlways
		obj.Spec.RoleName = new("Role 0")
		w.declare(obj)
		conn, err := registry.Connections.Ensure("ks", connection.Login{Version: "1"})
		if err != nil {
			t.Fatal(err)
		}
		w.all.Go(func() { w.work(ctx, loop, at) })
		held := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Contains(w.newest(at).Finalizers, v1beta1.FinalizerExternal)
		}
		comes := func(what string, condition func() bool) {
			t.Helper()
			for deadline := time.Now().Add(settleTime); !condition(); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Errorf("it does not come to be %s", what)
					return
				}
			}
		}
		left := func() string {
			names, err := loop.LeftBehind(ctx, "ks", conn)
			if err != nil {
				t.Error(err)
			}
			return strings.Join(names, ", ")
		}

		comes("ready", func() bool { return w.settled() && held() })
		for _, paused := range []bool{false, true} {
			w.mu.Lock()
			replaced := w.newest(at).DeepCopy()
			replaced.Finalizers, replaced.Annotations = nil, nil
			if paused {
				replaced.Annotations = map[string]string{v1beta1.AnnotationPaused: "true"}
			}
			w.store(replaced, time.Millisecond)
			w.mu.Unlock()
			began := time.Now()
			comes("held again", held)
			if d := time.Since(began); d > time.Minute {
				t.Errorf("it is held again after %s", d)
			}
		}
		if says := left(); says != "" {
			t.Errorf("left behind: %s", says)
		}
		w.mu.Lock()
		w.versions[at] = nil
		w.mu.Unlock()
		if says := left(); !strings.HasPrefix(says, "Role default/role-0 (id ") {
			t.Errorf("left behind: %q", says)
		}
		stop()
		registry.Connections.Close()
		w.all.Wait()
	})
}

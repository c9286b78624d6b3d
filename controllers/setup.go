package controllers

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// Options of the controllers. The zero value is what the manager uses.
type Options struct {
	// Dial makes the API of an endpoint; nil speaks HTTP.
	Dial Dial
	// Clock is nil for the system's.
	Clock clock.Clock

	timing *timing // nil for the default
}

// Setup registers the controllers with the manager, and the kinds with its
// scheme.
func Setup(mgr ctrl.Manager, o Options) error {
	if err := v1alpha1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	if err := corev1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	s := o.registry(cluster{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder("keyserver-operator"),
	}, mgr.GetFieldIndexer(), mgr.GetLogger())
	if err := mgr.Add(s.connections); err != nil {
		return err
	}
	if err := registerKinds(s); err != nil {
		return err
	}
	for _, c := range s.controllers {
		if err := c.Control(mgr); err != nil {
			return err
		}
	}
	return controlKeyServers(mgr, s)
}

// registry makes what the reconcilers share.
func (o Options) registry(c cluster, indexer client.FieldIndexer, log logr.Logger) *registry {
	if o.Dial == nil {
		o.Dial = dialHTTP
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.timing == nil {
		o.timing = &defaultTiming
	}
	c.clock = o.Clock
	return newRegistry(c, indexer, newConnections(o.Dial, o.Clock, *o.timing, log.WithName("connection")), *o.timing)
}

// registerKinds has one line for each kind. Those that others need come first, so
// that a plan knows of them.
func registerKinds(s *registry) error {
	return errors.Join(
		register(s, trustedCAAdapter{}),
		register(s, roleAdapter{}),
		register(s, trustedServerAdapter{}),
		register(s, principalTrustAdapter{}),
		register(s, aclTemplateAdapter{}),
	)
}

func newKeyServerReconciler(s *registry) *keyServerReconciler {
	return &keyServerReconciler{
		cluster: s.cluster, connections: s.connections, sources: s.sources, controllers: s.controllers,
		population: newPopulation("KeyServer"),
		wake:       make(chan event.TypedGenericEvent[wake]),
	}
}

// controlKeyServers makes the controller of KeyServers.
func controlKeyServers(mgr ctrl.Manager, s *registry) error {
	r := newKeyServerReconciler(s)
	s.connections.listen(r.hear)
	b := ctrl.NewControllerManagedBy(mgr).
		Named("keyserver").
		For(&v1alpha1.KeyServer{}, builder.WithPredicates(meant())).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(secretKind))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(configMapKind))).
		WatchesRawSource(source.TypedChannel(r.wake, enqueue()))
	// A KeyServer whose deletion waits goes with its last dependant.
	gone := predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	for _, c := range s.controllers {
		b = b.Watches(c.New(), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			m, ok := o.(managed)
			if !ok {
				return nil
			}
			spec, _ := m.Managed()
			return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: spec.KeyServerRef.Name}}}
		}), builder.WithPredicates(gone))
	}
	return b.Complete(r)
}

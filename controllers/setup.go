package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Options of the controllers. The zero value is what the manager uses.
type Options struct {
	// Dial makes the API of an endpoint; nil speaks HTTP.
	Dial Dial
	// Clock is nil for the system's.
	Clock clock.Clock

	timing *timing // nil for the default
}

// workers per kind. Most of a pass is waiting for the service.
const workers = 8

// Setup registers the controllers with the manager, and the kinds with its
// scheme.
func Setup(mgr ctrl.Manager, o Options) error {
	if err := v1alpha1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	if err := corev1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	s := newSetup(mgr, o)
	if err := mgr.Add(s.connections); err != nil {
		return err
	}
	// One line for each kind.
	if err := manage(s, trustedCAAdapter{}); err != nil {
		return err
	}
	if err := manage(s, roleAdapter{}); err != nil {
		return err
	}
	if err := manage(s, trustedServerAdapter{}); err != nil {
		return err
	}
	if err := manage(s, principalTrustAdapter{}); err != nil {
		return err
	}
	if err := manage(s, aclTemplateAdapter{}); err != nil {
		return err
	}
	for _, start := range s.starts {
		if err := start(); err != nil {
			return err
		}
	}
	return s.manageKeyServers()
}

// setup is what the controllers share.
type setup struct {
	cluster
	mgr         ctrl.Manager
	connections *connections
	sources     *sources
	timing      timing
	dependants  []func(context.Context, string) ([]string, error)
	objects     []client.Object // one of each kind
	// Which kinds need which others is known once all are registered; only
	// then are their controllers made.
	dependencies *dependencies
	starts       []func() error
}

func newSetup(mgr ctrl.Manager, o Options) *setup {
	if o.Dial == nil {
		o.Dial = dialHTTP
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.timing == nil {
		o.timing = &defaultTiming
	}
	return &setup{
		cluster: cluster{
			client: mgr.GetClient(), live: mgr.GetAPIReader(),
			recorder: mgr.GetEventRecorder("keyserver-operator"), clock: o.Clock,
		},
		mgr:         mgr,
		connections: newConnections(o.Dial, o.Clock, *o.timing, mgr.GetLogger().WithName("connection")),
		sources:     newSources(mgr.GetClient(), mgr.GetAPIReader()),
		timing:      *o.timing,

		dependencies: &dependencies{},
	}
}

// manage registers the controller of one kind.
func manage[T managed, D any](s *setup, a adapter[T, D]) error {
	k := a.Kind()
	r := &reconciler[T, D]{
		cluster: s.cluster, adapter: a, kind: k,
		connections: s.connections, sources: s.sources, timing: s.timing, dependencies: s.dependencies,
		population: newPopulation(k.Name), failures: newFailures(),
		wake: make(chan event.TypedGenericEvent[types.NamespacedName]),
	}
	for field, index := range r.indexes() {
		if err := s.mgr.GetFieldIndexer().IndexField(context.Background(), k.New(), field, index); err != nil {
			return fmt.Errorf("index %s by %s: %w", k.Name, field, err)
		}
	}
	if err := join(s, r); err != nil {
		return err
	}
	s.connections.listen(r.hear)
	s.connections.ids[k.Feed] = k.Spell
	for _, awaited := range slices.Concat(k.Awaits, k.Uses) {
		if s.connections.ids[awaited] == nil { // no kind of ours, or not yet
			s.connections.ids[awaited] = schema.HexID.String
		}
	}
	s.objects = append(s.objects, k.New())
	s.dependants = append(s.dependants, func(ctx context.Context, keyServer string) ([]string, error) {
		found, err := r.list(ctx, client.MatchingFields{keyServerIndex: keyServer})
		names := make([]string, len(found))
		for i, obj := range found {
			names[i] = r.name(obj)
		}
		return names, err
	})
	s.starts = append(s.starts, func() error { return control(s, r) })
	return nil
}

// control makes the controller of one kind.
func control[T managed, D any](s *setup, r *reconciler[T, D]) error {
	k := r.kind
	b := ctrl.NewControllerManagedBy(s.mgr).
		Named(strings.ToLower(k.Name)).
		For(k.New(), builder.WithPredicates(meant())).
		Watches(k.New(), handler.EnqueueRequestsFromMapFunc(r.claimantsOf)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(secretKind))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(configMapKind))).
		WatchesRawSource(source.TypedChannel(r.wake, enqueueNames())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	return s.dependencies.watch(b, r.needs, r.provides).Complete(r)
}

func (s *setup) manageKeyServers() error {
	r := &keyServerReconciler{
		cluster: s.cluster, connections: s.connections, sources: s.sources, dependants: s.dependants,
		population: newPopulation("KeyServer"),
		wake:       make(chan event.TypedGenericEvent[types.NamespacedName]),
	}
	s.connections.listen(r.hear)
	b := ctrl.NewControllerManagedBy(s.mgr).
		Named("keyserver").
		For(&v1alpha1.KeyServer{}, builder.WithPredicates(meant())).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(secretKind))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(configMapKind))).
		WatchesRawSource(source.TypedChannel(r.wake, enqueueNames()))
	// A KeyServer whose deletion waits goes with its last dependant.
	gone := predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	for _, obj := range s.objects {
		b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
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

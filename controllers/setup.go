package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
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
	if err := s.manageKinds(); err != nil {
		return err
	}
	for _, start := range s.starts {
		if err := start(); err != nil {
			return err
		}
	}
	return s.manageKeyServers()
}

// manageKinds has one line for each kind. Those that others need come first, so
// that a plan knows of them.
func (s *setup) manageKinds() error {
	return errors.Join(
		manage(s, trustedCAAdapter{}),
		manage(s, roleAdapter{}),
		manage(s, trustedServerAdapter{}),
		manage(s, principalTrustAdapter{}),
		manage(s, aclTemplateAdapter{}),
	)
}

// setup is what the controllers share.
type setup struct {
	cluster
	mgr         ctrl.Manager // nil in a plan
	indexer     client.FieldIndexer
	connections *connections
	sources     *sources
	timing      timing
	dependants  []func(context.Context, string) ([]string, error)
	objects     []client.Object // one of each kind
	// Which kinds need which others is known once all are registered; only
	// then are their controllers made.
	dependencies *dependencies
	starts       []func() error
	plan         *planning // nil in a manager
}

func newSetup(mgr ctrl.Manager, o Options) *setup {
	s := newSetupOn(cluster{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder("keyserver-operator"),
	}, mgr.GetFieldIndexer(), mgr.GetLogger(), o)
	s.mgr = mgr
	return s
}

func newSetupOn(c cluster, indexer client.FieldIndexer, log logr.Logger, o Options) *setup {
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
	return &setup{
		cluster:     c,
		indexer:     indexer,
		connections: newConnections(o.Dial, o.Clock, *o.timing, log.WithName("connection")),
		sources:     newSources(c.client, c.live),
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
		wake: make(chan event.TypedGenericEvent[wake]),
	}
	for field, index := range r.indexes() {
		if err := s.indexer.IndexField(context.Background(), k.New(), field, index); err != nil {
			return fmt.Errorf("index %s by %s: %w", k.Name, field, err)
		}
	}
	if err := join(s, r); err != nil {
		return err
	}
	if s.plan != nil {
		enlist(s.plan, r)
	}
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
	s.connections.listen(r.hear)
	b := ctrl.NewControllerManagedBy(s.mgr).
		Named(strings.ToLower(k.Name)).
		For(k.New(), builder.WithPredicates(meant())).
		Watches(k.New(), handler.EnqueueRequestsFromMapFunc(r.claimantsOf)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(secretKind))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(configMapKind))).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.residentsOf), builder.WithPredicates(relabelled())).
		WatchesRawSource(source.TypedChannel(r.wake, enqueue())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	return s.dependencies.watch(b, r.needs, r.provides).Complete(r)
}

func (s *setup) keyServers() *keyServerReconciler {
	return &keyServerReconciler{
		cluster: s.cluster, connections: s.connections, sources: s.sources, dependants: s.dependants,
		population: newPopulation("KeyServer"),
		wake:       make(chan event.TypedGenericEvent[wake]),
	}
}

func (s *setup) manageKeyServers() error {
	r := s.keyServers()
	s.connections.listen(r.hear)
	b := ctrl.NewControllerManagedBy(s.mgr).
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

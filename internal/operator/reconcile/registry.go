package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// workers is the number of concurrent passes per kind. A pass mostly waits for the key server.
const workers = 8

// Controller is the reconciler of one kind without type parameters.
type Controller interface {
	reconcile.Reconciler
	// Control registers the reconciler with the manager. Call it after all kinds are registered, because only then the
	// dependencies between kinds are known.
	Control(mgr ctrl.Manager) error
	// Concerns selects the events of the kind's own objects that require a pass.
	Concerns() predicate.Predicate
	// Kind is the name of the kind.
	Kind() string
	// New returns an empty object of the kind. Has reports whether an object is of the kind.
	New() client.Object
	Has(obj client.Object) bool
	// Dependants returns the names of the objects that refer to a KeyServer.
	Dependants(ctx context.Context, keyServer string) ([]string, error)
	// LeftBehind lists the external objects on a key server whose owner mark names an object of this cluster that does not
	// exist, or that refers to another KeyServer.
	LeftBehind(ctx context.Context, keyServer string, conn *connection.Connection) ([]string, error)
	// Peer returns the name of the peer KeyServer of an object, or "".
	Peer(obj client.Object) string
	// Plan runs a pass without writes and returns its decision. It returns nil if the object does not exist, or if it is
	// being deleted and only has finalizers of other controllers.
	Plan(ctx context.Context, at types.NamespacedName) (*Intent, error)
}

// Registry has the reconcilers of all kinds and their shared parts.
type Registry struct {
	Cluster
	indexer      client.FieldIndexer
	Connections  *connection.Connections
	Sources      *sources.Reader
	timing       connection.Timing
	Controllers  []Controller // in the order in which they were registered
	dependencies *dependencies
}

// NewRegistry returns a registry without reconcilers.
func NewRegistry(c Cluster, indexer client.FieldIndexer, connections *connection.Connections, t connection.Timing) *Registry {
	return &Registry{
		Cluster: c, indexer: indexer, Connections: connections, timing: t,
		Sources:      sources.New(c.Client, c.Live, c.Secrets),
		dependencies: &dependencies{},
	}
}

// Register creates the reconciler of one kind.
func Register[T Object, D any](s *Registry, a Adapter[T, D]) error {
	k := a.Kind()
	api, known := v1beta1.KindNamed(k.Name)
	if !known || !isOf[T](api.New()) {
		return fmt.Errorf("%T is not an adapter of the kind %s", a, k.Name)
	}
	r := &reconciler[T, D]{
		Cluster: s.Cluster, adapter: a, kind: k, api: api,
		connections: s.Connections, sources: s.Sources, timing: s.timing, dependencies: s.dependencies,
		population: status.NewPopulation(k.Name), failures: newFailures(),
		wake:  make(chan event.TypedGenericEvent[Wake]),
		marks: connection.NewMarks(k.Feed, k.FormatID, k.ParseID), published: newPublished(),
	}
	for field, index := range r.indexes() {
		if err := s.indexer.IndexField(context.Background(), api.New(), field, index); err != nil {
			return fmt.Errorf("index %s by %s: %w", k.Name, field, err)
		}
	}
	if err := join(s, r); err != nil {
		return err
	}
	s.Connections.SetIDFormat(k.Feed, k.FormatID)
	s.Connections.SetIDFormat(connection.MarksFeed(k.Feed), k.FormatID)
	for _, awaited := range slices.Concat(k.Awaits, k.Uses, k.Follows) {
		if !s.Connections.HasIDFormat(awaited) { // this kind is not one of the operator, or not registered yet
			s.Connections.SetIDFormat(awaited, schema.HexID.String)
		}
	}
	s.Controllers = append(s.Controllers, r)
	status.BeginAtZero(k.Name)
	return nil
}

// Control implements Controller.
func (r *reconciler[T, D]) Control(mgr ctrl.Manager) error {
	r.connections.Listen(r.handleNotice)
	b := ctrl.NewControllerManagedBy(mgr).
		Named(strings.ToLower(r.kind.Name)).
		For(r.New(), builder.WithPredicates(r.Concerns())).
		Watches(r.New(), handler.EnqueueRequestsFromMapFunc(r.claimantsOf)).
		WatchesRawSource(r.sources.SecretChanges(r.readersOf(sources.Secret))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(sources.ConfigMap))).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.residentsOf), builder.WithPredicates(relabelled())).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.selectorsOf), builder.WithPredicates(selectable())).
		WatchesRawSource(source.TypedChannel(r.wake, Enqueue())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	return r.dependencies.watch(b, r.needs, r.provides).Complete(r)
}

// Kind implements Controller.
func (r *reconciler[T, D]) Kind() string { return r.kind.Name }

// New implements Controller.
func (r *reconciler[T, D]) New() client.Object { return r.api.New() }

// Has implements Controller.
func (r *reconciler[T, D]) Has(obj client.Object) bool { return isOf[T](obj) }

func isOf[T any](obj any) bool { _, is := obj.(T); return is }

// Dependants implements Controller.
func (r *reconciler[T, D]) Dependants(ctx context.Context, keyServer string) ([]string, error) {
	found, err := r.list(ctx, client.MatchingFields{keyServerIndex: keyServer})
	names := make([]string, len(found))
	for i, obj := range found {
		names[i] = r.name(obj)
	}
	return names, err
}

// Peer implements Controller.
func (r *reconciler[T, D]) Peer(o client.Object) string {
	at, peers := any(r.adapter).(Peered[T])
	obj, is := o.(T)
	if !peers || !is || at.Peer(obj) == nil {
		return ""
	}
	return at.Peer(obj).Name
}

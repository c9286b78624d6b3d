package controllers

import (
	"context"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
)

// Options configure the controllers. The zero value means the defaults of the manager.
type Options struct {
	// Dial returns the API of an endpoint. nil means HTTP.
	Dial connection.Dial
	// ClusterName is the name of this cluster in audit logs.
	ClusterName string
	// TokenFiles are files with tokens of the manager's service account, by audience.
	TokenFiles map[string]string
	// Tracer creates spans of passes and of calls to key servers; nil disables tracing.
	Tracer *tracing.Tracer
	// Clock is the system clock if it is nil.
	Clock clock.Clock

	timing *connection.Timing // nil for the default
}

// Setup registers the controllers with the manager, and the Go types of the kinds with its scheme.
func Setup(mgr ctrl.Manager, o Options) error {
	if err := v1beta1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	if err := corev1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	issuer, err := IssuerOf(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	secrets, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	s := o.registry(reconcile.Cluster{
		Name: o.ClusterName, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Secrets: secrets, Recorder: mgr.GetEventRecorder("keyserver-operator"),
		Issuer: issuer,
	}, mgr.GetFieldIndexer(), mgr.GetLogger())
	if err := mgr.Add(s.Connections); err != nil {
		return err
	}
	if err := mgr.Add(s.Sources); err != nil {
		return err
	}
	if err := registerKinds(s); err != nil {
		return err
	}
	for _, c := range s.Controllers {
		if err := c.Control(mgr); err != nil {
			return err
		}
	}
	return controlKeyServers(mgr, s, o.TokenFiles)
}

// registry creates the registry of the reconcilers.
func (o Options) registry(c reconcile.Cluster, indexer client.FieldIndexer, log logr.Logger) *reconcile.Registry {
	if o.Dial == nil {
		o.Dial = connection.DialTraced(o.Tracer)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.timing == nil {
		o.timing = &connection.DefaultTiming
	}
	c.Clock, c.Tracer = o.Clock, o.Tracer
	if c.Identity == nil {
		c.Identity = &reconcile.Identity{}
	}
	return reconcile.NewRegistry(c, indexer, connection.NewConnections(o.Dial, o.Clock, *o.timing, log.WithName("connection")), *o.timing)
}

func newKeyServerReconciler(s *reconcile.Registry) *keyServerReconciler {
	return &keyServerReconciler{
		Cluster: s.Cluster, connections: s.Connections, sources: s.Sources, controllers: s.Controllers,
		population: status.NewPopulation(keyServerKind.Name),
		wake:       make(chan event.TypedGenericEvent[reconcile.Wake]),
	}
}

// controlKeyServers registers the controller of KeyServers.
func controlKeyServers(mgr ctrl.Manager, s *reconcile.Registry, tokenFiles map[string]string) error {
	r := newKeyServerReconciler(s)
	r.tokenFiles = tokenFiles
	s.Connections.Listen(r.handleNotice)
	b := ctrl.NewControllerManagedBy(mgr).
		Named("keyserver").
		For(&v1beta1.KeyServer{}, builder.WithPredicates(status.Concerns(r.population))).
		WatchesRawSource(s.Sources.SecretChanges(r.readersOf(sources.Secret))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.readersOf(sources.ConfigMap))).
		WatchesRawSource(source.TypedChannel(r.wake, reconcile.Enqueue()))
	// A KeyServer that is being deleted waits for the deletion of the last object that refers to it.
	gone := predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	for _, c := range s.Controllers {
		b = b.Watches(c.New(), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			m, ok := o.(reconcile.Object)
			if !ok {
				return nil
			}
			spec, _ := m.Managed()
			return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: spec.KeyServerRef.Name}}}
		}), builder.WithPredicates(gone))
	}
	return b.Complete(r)
}

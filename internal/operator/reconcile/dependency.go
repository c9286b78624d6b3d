package reconcile

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// Consumer is implemented by adapters whose objects need objects of another kind. A change of a needed object enqueues
// the objects that need it.
type Consumer[T Object] interface {
	// Needs returns the needs of the object. Their keys are keys of Provides of another kind.
	Needs(obj T) []Need
}

// Provider is implemented by adapters of objects that other objects need.
type Provider[T Object] interface {
	// Provides returns every key by which other objects can need the object.
	Provides(obj T) []string
}

// Need is one requirement of an object.
type Need struct {
	Key string
	// Holds means that no provider of Key may be deleted while this object exists.
	Holds bool
}

// Names of the cache indexes by the keys of consumers and of providers.
const (
	needIndex    = "needs"
	provideIndex = "provides"
)

// dependencies lists the kinds that need other kinds, and the kinds that are needed.
type dependencies struct {
	consumers []*dependencyIndex
	providers []*dependencyIndex
}

// dependencyIndex is one kind in its role as consumer or as provider.
type dependencyIndex struct {
	object client.Object // an empty object of the kind
	keys   func(client.Object) []string
	find   func(context.Context, string) ([]client.Object, error)
	holds  func(client.Object, string) bool // nil for a provider
	// covered reports whether a grant covers an object of this kind. Otherwise the object blocks no deletion.
	covered func(context.Context, client.Object) (bool, error)
	name    func(client.Object) string
}

// join registers a kind as consumer and as provider, and adds the cache indexes for its keys.
func join[T Object, D any](s *Registry, r *reconciler[T, D]) error {
	of := func(index string, keys func(T) []string) (*dependencyIndex, error) {
		byKey := indexed(keys)
		if err := s.indexer.IndexField(context.Background(), r.New(), index, byKey); err != nil {
			return nil, fmt.Errorf("index %s by %s: %w", r.kind.Name, index, err)
		}
		return &dependencyIndex{
			object: r.New(), keys: byKey,
			find: func(ctx context.Context, key string) ([]client.Object, error) {
				found, err := r.list(ctx, client.MatchingFields{index: key})
				out := make([]client.Object, len(found))
				for i, o := range found {
					out[i] = o
				}
				return out, err
			},
			name: func(o client.Object) string { return NameOf(r.kind.Name, o) },
			covered: func(ctx context.Context, o client.Object) (bool, error) {
				obj, ok := o.(T)
				if !ok {
					return false, nil
				}
				return r.granted(ctx, obj)
			},
		}, nil
	}
	if c, ok := any(r.adapter).(Consumer[T]); ok {
		joined, err := of(needIndex, func(obj T) []string {
			var keys []string
			for _, n := range c.Needs(obj) {
				keys = append(keys, n.Key)
			}
			return keys
		})
		if err != nil {
			return err
		}
		joined.holds = func(o client.Object, key string) bool {
			obj, ok := o.(T)
			if !ok {
				return false
			}
			// An object that only observes blocks no deletion.
			spec, _ := obj.Managed()
			return spec.ManagementPolicy != v1beta1.Observe && slices.Contains(c.Needs(obj), Need{Key: key, Holds: true})
		}
		r.needs = joined
		s.dependencies.consumers = append(s.dependencies.consumers, joined)
	}
	if p, ok := any(r.adapter).(Provider[T]); ok {
		joined, err := of(provideIndex, p.Provides)
		if err != nil {
			return err
		}
		r.provides = joined
		s.dependencies.providers = append(s.dependencies.providers, joined)
	}
	return nil
}

// watch makes the controller of a kind reconcile objects when an object that they need changes. It also reconciles an
// object when a consumer of it is deleted or no longer needs it.
func (d *dependencies) watch(b *builder.Builder, needs, provides *dependencyIndex) *builder.Builder {
	if needs != nil {
		for _, p := range d.providers {
			b = b.Watches(p.object, handler.EnqueueRequestsFromMapFunc(sharing(p.keys, needs.find)), builder.WithPredicates(p.readinessChanged()))
		}
	}
	if provides != nil {
		for _, c := range d.consumers {
			b = b.Watches(c.object, handler.EnqueueRequestsFromMapFunc(sharing(c.keys, provides.find)), builder.WithPredicates(c.needRemoved()))
		}
	}
	return b
}

// sharing returns a function that maps an object to the objects found by its keys.
func sharing(keys func(client.Object) []string, find func(context.Context, string) ([]client.Object, error)) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		var requests []ctrl.Request
		for _, key := range keys(o) {
			found, err := find(ctx, key)
			if err != nil {
				continue // the resync of the other objects finds the change
			}
			for _, other := range found {
				requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: other.GetNamespace(), Name: other.GetName()}})
			}
		}
		return requests
	}
}

// readinessChanged selects the events after which consumers of an object may have to wait, or no longer have to wait.
func (s *dependencyIndex) readinessChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return isReady(e.ObjectOld) != isReady(e.ObjectNew) || !slices.Equal(s.keys(e.ObjectOld), s.keys(e.ObjectNew))
	}}
}

// needRemoved selects the events after which the deletion of a provider may no longer have to wait.
func (s *dependencyIndex) needRemoved() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		// The handler maps the old object, too, so it also enqueues a provider that is no longer needed.
		UpdateFunc: func(e event.UpdateEvent) bool { return !slices.Equal(s.keys(e.ObjectOld), s.keys(e.ObjectNew)) },
	}
}

// dependants returns the names of the consumers that block the deletion of a provider with these keys, sorted.
func (d *dependencies) dependants(ctx context.Context, keys []string) ([]string, error) {
	var names []string
	for _, c := range d.consumers {
		for _, key := range keys {
			found, err := c.find(ctx, key)
			if err != nil {
				return nil, err
			}
			for _, o := range found {
				name := c.name(o)
				if !c.holds(o, key) || slices.Contains(names, name) {
					continue
				}
				covered, err := c.covered(ctx, o)
				if err != nil {
					return nil, err
				}
				if covered {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

func isReady(o client.Object) bool {
	m, ok := o.(Object)
	if !ok {
		return false
	}
	_, status := m.Managed()
	return meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionReady)
}

package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// Names of the cache indexes, by which an event finds its objects without a scan.
const (
	keyServerIndex = "spec.keyServerRef.name"
	ownedIndex     = "external id"
	claimIndex     = "claim"
	sourceIndex    = "source"
	peerIndex      = "peer" // of kinds that implement Peered
	followIndex    = "followed"
	selectIndex    = "selects namespaces"
)

// IndexKey returns an index key for an id or claim on one key server.
func IndexKey(keyServer, id string) string { return keyServer + "\x00" + id }

// indexes returns the cache indexes of the kind's objects.
func (r *reconciler[T, D]) indexes() map[string]client.IndexerFunc {
	indexes := map[string]client.IndexerFunc{
		keyServerIndex: indexed(func(obj T) []string {
			spec, _ := obj.Managed()
			return []string{spec.KeyServerRef.Name}
		}),
		ownedIndex: indexed(func(obj T) []string {
			ids := []string{r.adapter.Owned(obj)}
			if rot, ok := any(r.adapter).(Rotator[T]); ok {
				for _, s := range rot.Superseded(obj) {
					ids = append(ids, s.ID)
				}
			}
			return indexKeys(obj, ids)
		}),
		// An object that only observes has no claims.
		claimIndex: indexed(func(obj T) []string {
			if spec, _ := obj.Managed(); spec.ManagementPolicy == v1beta1.Observe {
				return nil
			}
			return indexKeys(obj, r.adapter.Claims(obj, nil))
		}),
		sourceIndex: indexed(r.sourceKeys),
	}
	if sel, ok := any(r.adapter).(NamespaceSelector[T]); ok {
		indexes[selectIndex] = indexed(func(obj T) []string {
			if sel.SelectsNamespaces(obj) {
				return []string{"yes"}
			}
			return nil
		})
	}
	if by, ok := any(r.adapter).(Follower[T]); ok {
		indexes[followIndex] = indexed(func(obj T) []string {
			var ids []string
			for _, f := range by.Follows(obj) {
				ids = append(ids, followKey(f.Feed, f.ID))
			}
			return indexKeys(obj, ids)
		})
	}
	if at, ok := any(r.adapter).(Peered[T]); ok {
		indexes[peerIndex] = indexed(func(obj T) []string {
			if ref := at.Peer(obj); ref != nil {
				return []string{ref.Name}
			}
			return nil
		})
	}
	return indexes
}

// sourceKeys returns the keys of the Secrets and ConfigMaps that the object reads, and of its publications. A change of
// any of these enqueues the object.
func (r *reconciler[T, D]) sourceKeys(obj T) (keys []string) {
	for _, s := range r.adapter.Sources(obj) {
		keys = append(keys, s.String())
	}
	if pub, ok := any(r.adapter).(Publisher[T]); ok {
		for _, ref := range pub.Publishes(obj) {
			keys = append(keys, sources.Ref{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}.String())
		}
	}
	return keys
}

// indexed returns an index function for the objects of one kind. For other objects it returns no keys.
func indexed[T Object](keys func(T) []string) client.IndexerFunc {
	return func(o client.Object) []string {
		obj, ok := o.(T)
		if !ok {
			return nil
		}
		return keys(obj)
	}
}

// indexKeys returns index keys for ids on the object's key server. It skips empty ids.
func indexKeys(obj Object, ids []string) []string {
	spec, _ := obj.Managed()
	keys := make([]string, 0, len(ids))
	for _, id := range ids {
		if id != "" {
			keys = append(keys, IndexKey(spec.KeyServerRef.Name, id))
		}
	}
	return keys
}

func followKey(feed, id string) string { return feed + " " + id }

// list reads objects from the cache without a copy. The caller must not change them.
func (r *reconciler[T, D]) list(ctx context.Context, by client.ListOption) ([]T, error) {
	l := r.api.NewList()
	if err := r.Client.List(ctx, l, by, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list objects of kind %s: %w", r.kind.Name, err)
	}
	var found []T
	err := meta.EachListItem(l, func(o runtime.Object) error {
		if obj, ok := o.(T); ok {
			found = append(found, obj)
		}
		return nil
	})
	return found, err
}

// handleNotice enqueues the objects that a notice of a connection concerns: the owners of changed objects, and objects
// that are not ready and may wait for the change.
func (r *reconciler[T, D]) handleNotice(ctx context.Context, n connection.Notice) {
	awaited, used, peers := slices.Contains(r.kind.Awaits, n.Kind), slices.Contains(r.kind.Uses, n.Kind), n.Kind == trustInfo.Name
	own := n.Kind == r.kind.Feed || n.Kind == connection.MarksFeed(r.kind.Feed)
	followed := slices.Contains(r.kind.Follows, n.Kind)
	if n.Kind != "" && !own && !awaited && !used && !peers && !followed {
		return
	}
	if n.Kind == "" && n.IDs != nil {
		return // the notice concerns only the KeyServer
	}
	woken := map[types.NamespacedName]bool{}
	enqueue := func(key, value string, want func(T) bool) {
		found, err := r.list(ctx, client.MatchingFields{key: value})
		if err != nil {
			ctrl.Log.WithName("wakeup").Error(err, "objects could not be found in the cache; they notice the change at their resync", "keyServer", n.KeyServer)
			return
		}
		for _, obj := range found {
			name := client.ObjectKeyFromObject(obj)
			if woken[name] || !want(obj) {
				continue
			}
			woken[name] = true
			select {
			case r.wake <- event.TypedGenericEvent[Wake]{Object: Wake{name, n.IDs == nil}}:
			case <-ctx.Done():
				return
			}
		}
	}
	all := func(T) bool { return true }
	if _, ok := any(r.adapter).(Peered[T]); ok && (n.IDs == nil || used || peers) {
		enqueue(peerIndex, n.KeyServer, all)
	}
	if peers {
		return // the objects of the KeyServer itself are unchanged
	}
	if n.IDs == nil || used {
		enqueue(keyServerIndex, n.KeyServer, all)
		return
	}
	for id := range n.IDs {
		if followed {
			enqueue(followIndex, IndexKey(n.KeyServer, followKey(n.Kind, id)), all)
		}
		if own { // the id is one of this kind
			enqueue(ownedIndex, IndexKey(n.KeyServer, id), all)
		}
	}
	enqueue(keyServerIndex, n.KeyServer, unready[T])
}

func unready[T Object](obj T) bool {
	_, status := obj.Managed()
	return !meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionReady)
}

// claimantsOf maps an object to the other objects with a common claim. When the object is deleted, one of them takes
// over the external object.
func (r *reconciler[T, D]) claimantsOf(ctx context.Context, o client.Object) []ctrl.Request {
	obj, ok := o.(T)
	if !ok {
		return nil
	}
	spec, _ := obj.Managed()
	var requests []ctrl.Request
	for _, claim := range r.adapter.Claims(obj, nil) {
		found, err := r.list(ctx, client.MatchingFields{claimIndex: IndexKey(spec.KeyServerRef.Name, claim)})
		if err != nil {
			continue // the resync of the objects finds the change
		}
		for _, other := range found {
			if other.GetUID() != obj.GetUID() {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(other)})
			}
		}
	}
	return requests
}

// readersOf maps a Secret or ConfigMap to the objects that read it.
func (r *reconciler[T, D]) readersOf(sourceKind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		src := sources.Ref{Kind: sourceKind, Namespace: o.GetNamespace(), Name: o.GetName()}
		found, err := r.list(ctx, client.MatchingFields{sourceIndex: src.String()})
		if err != nil {
			return nil // the resync of the objects finds the change
		}
		requests := make([]ctrl.Request, len(found))
		for i, obj := range found {
			requests[i].NamespacedName = client.ObjectKeyFromObject(obj)
		}
		return requests
	}
}

// residentsOf maps a namespace to its objects, if any KeyServer has a grant that selects namespaces by labels.
func (r *reconciler[T, D]) residentsOf(ctx context.Context, namespace client.Object) []ctrl.Request {
	all := &v1beta1.KeyServerList{}
	if err := r.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the resync of the objects finds the change
	}
	if !slices.ContainsFunc(all.Items, func(ks v1beta1.KeyServer) bool {
		return slices.ContainsFunc(ks.Spec.Grants, func(g v1beta1.Grant) bool { return g.Namespaces.Selector != nil })
	}) {
		return nil
	}
	found, err := r.list(ctx, client.InNamespace(namespace.GetName()))
	if err != nil {
		return nil
	}
	requests := make([]ctrl.Request, len(found))
	for i, obj := range found {
		requests[i].NamespacedName = client.ObjectKeyFromObject(obj)
	}
	return requests
}

// selectorsOf returns the objects that publish in all namespaces with certain labels.
func (r *reconciler[T, D]) selectorsOf(ctx context.Context, _ client.Object) []ctrl.Request {
	if _, selects := any(r.adapter).(NamespaceSelector[T]); !selects {
		return nil
	}
	found, err := r.list(ctx, client.MatchingFields{selectIndex: "yes"})
	if err != nil {
		return nil // the resync of the objects finds the change
	}
	requests := make([]ctrl.Request, len(found))
	for i, obj := range found {
		requests[i].NamespacedName = client.ObjectKeyFromObject(obj)
	}
	return requests
}

// selectable selects events of namespaces: creation, deletion and changed labels.
func selectable() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
		},
	}
}

// relabelled selects events of namespaces whose labels have changed.
func relabelled() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false }, // a new namespace has no objects yet
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
		},
	}
}

// Wake is one object that handleNotice adds to the queue of its kind.
type Wake struct {
	Object types.NamespacedName
	// All means that the notice enqueues all objects of the key server.
	All bool
}

// Enqueue handles the events of handleNotice. If a notice enqueues all objects, for example when a key server responds
// again, they get a low priority. So new objects and single changes are handled first.
func Enqueue() handler.TypedFuncs[Wake, ctrl.Request] {
	return handler.TypedFuncs[Wake, ctrl.Request]{
		GenericFunc: func(_ context.Context, e event.TypedGenericEvent[Wake], q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			req := ctrl.Request{NamespacedName: e.Object.Object}
			if pq, ok := q.(priorityqueue.PriorityQueue[ctrl.Request]); ok && e.Object.All {
				low := handler.LowPriority
				pq.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, req)
				return
			}
			q.Add(req)
		},
	}
}

// Concerns implements Controller. While the cached object is Ready, a notice finds it only by the ids in its indexes.
// If an update adds ids, or the object starts to wait, it may have missed a notice and needs a pass.
func (r *reconciler[T, D]) Concerns() predicate.Predicate {
	indexes := r.indexes()
	missed := func(e event.UpdateEvent) bool {
		old, is := e.ObjectOld.(T)
		now, are := e.ObjectNew.(T)
		if !is || !are || unready(old) {
			return false // every notice enqueues an object that is not Ready
		}
		if unready(now) {
			return true
		}
		for _, name := range []string{ownedIndex, followIndex} {
			if keys, has := indexes[name]; has && !sets.New(keys(old)...).HasAll(keys(now)...) {
				return true
			}
		}
		return false
	}
	return predicate.Or(status.Concerns(r.population), predicate.Funcs{UpdateFunc: missed})
}

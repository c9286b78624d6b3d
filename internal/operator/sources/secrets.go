package sources

import (
	"context"
	"maps"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// maxSecretNamespaces limits the number of namespaces in which Secrets are watched. In other namespaces, objects notice
// a changed Secret at their next reconciliation.
const maxSecretNamespaces = 1000

// secretWatch watches the metadata of Secrets in the namespaces in which
// objects refer to Secrets, so that the manager needs no permission to read
// Secrets elsewhere. A forbidden watch is retried after pauses that grow to
// a minute, and does not block any caller. secretWatch owns its goroutines.
type secretWatch struct {
	client metadata.Interface
	log    logr.Logger

	ctx  context.Context //nolint:containedctx // the lifetime of the goroutines of secretWatch, not of a call
	quit context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	uses   map[referrer]map[string]bool // by object: the namespaces of its Secrets
	spaces map[string]*secretSpace
	hear   []func(Ref)
}

// referrer is an object that refers to Secrets.
type referrer struct {
	kind string
	types.NamespacedName
}

// secretSpace is the watch of one namespace.
type secretSpace struct {
	informer cache.SharedIndexInformer
	readers  map[referrer]bool
	end      context.CancelFunc

	mu sync.Mutex
	// refused means that the last attempt to watch was forbidden. refusedAt is the resource version that the informer had
	// at that time.
	refused   bool
	refusedAt string
}

// newSecretWatch returns nil if client is nil. Then no Secret is watched, and each is read when it is needed.
func newSecretWatch(client metadata.Interface, log logr.Logger) *secretWatch {
	if client == nil {
		return nil
	}
	ctx, quit := context.WithCancel(context.Background())
	return &secretWatch{client: client, log: log, ctx: ctx, quit: quit, uses: map[referrer]map[string]bool{}, spaces: map[string]*secretSpace{}}
}

// close ends all watches and waits until their goroutines have ended.
func (w *secretWatch) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.quit()
	w.mu.Unlock()
	w.wg.Wait()
}

// refer records to which Secrets an object refers, and starts and stops the watches of their namespaces.
func (w *secretWatch) refer(who referrer, to []Ref) {
	if w == nil {
		return
	}
	now := map[string]bool{}
	for _, src := range to {
		if src.Kind == Secret {
			now[src.Namespace] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for namespace := range w.uses[who] {
		if space := w.spaces[namespace]; space != nil && !now[namespace] {
			if delete(space.readers, who); len(space.readers) == 0 {
				space.end()
				delete(w.spaces, namespace)
			}
		}
	}
	if len(now) == 0 {
		delete(w.uses, who)
		return
	}
	w.uses[who] = now
	for namespace := range maps.Keys(now) {
		space := w.spaces[namespace]
		if space == nil {
			if space = w.begin(namespace); space == nil {
				continue
			}
		}
		space.readers[who] = true
	}
}

// begin starts the watch of a namespace. It returns nil if the limit is reached or the watch cannot start.
func (w *secretWatch) begin(namespace string) *secretSpace {
	if w.ctx.Err() != nil {
		return nil
	}
	if len(w.spaces) >= maxSecretNamespaces {
		w.log.Info("too many namespaces have Secrets for objects: this one is not watched, so changes are noticed at each object's resyncInterval", "namespace", namespace, "watched", len(w.spaces))
		return nil
	}
	ctx, end := context.WithCancel(w.ctx)
	space := &secretSpace{
		informer: metadatainformer.NewFilteredMetadataInformer(w.client, corev1.SchemeGroupVersion.WithResource("secrets"), namespace, 0, nil, nil).Informer(),
		readers:  map[referrer]bool{}, end: end,
	}
	_, err := space.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: w.changed, DeleteFunc: w.changed,
		UpdateFunc: func(_, now any) { w.changed(now) },
	})
	if err == nil {
		err = space.informer.SetTransform(bare)
	}
	if err == nil {
		err = space.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if space.failed(err) {
				w.log.Info("Secrets cannot be watched; the manager tries again", "namespace", namespace, "cause", err.Error())
			}
		})
	}
	if err != nil { // an informer that has started already cannot be changed
		end()
		w.log.Error(err, "Secrets are not watched", "namespace", namespace)
		return nil
	}
	w.wg.Go(func() { space.informer.RunWithContext(ctx) })
	w.spaces[namespace] = space
	return space
}

// bare removes unneeded metadata of a Secret. Annotations may contain the entire Secret, for example those of kubectl
// apply.
func bare(obj any) (any, error) {
	m, is := obj.(*metav1.PartialObjectMetadata)
	if !is {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
	}}, nil
}

func (w *secretWatch) changed(obj any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return
	}
	w.mu.Lock()
	hear := w.hear
	w.mu.Unlock()
	for _, tell := range hear {
		tell(Ref{Kind: Secret, Namespace: namespace, Name: name})
	}
}

// changes returns a source of events that enqueues the objects that read a changed Secret.
func (w *secretWatch) changes(readersOf handler.MapFunc) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		if w == nil {
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hear = append(w.hear, func(src Ref) {
			about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: src.Namespace, Name: src.Name}}
			for _, request := range readersOf(ctx, about) {
				queue.Add(request)
			}
		})
		return nil
	})
}

// version returns the cached version of a Secret, or "" if the Secret does not exist. known is false if the namespace
// is not watched.
func (w *secretWatch) version(src Ref) (version string, known bool) {
	if w == nil {
		return "", false
	}
	w.mu.Lock()
	space := w.spaces[src.Namespace]
	w.mu.Unlock()
	if space == nil || !space.follows() {
		return "", false
	}
	obj, there, err := space.informer.GetStore().GetByKey(src.Namespace + "/" + src.Name)
	m, is := obj.(*metav1.PartialObjectMetadata)
	if err != nil || !there || !is {
		return "", err == nil
	}
	return versionOf(m), true
}

// failed records that a watch was forbidden. It returns true if that is new.
func (s *secretSpace) failed(err error) bool {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, at := s.refused, s.informer.LastSyncResourceVersion()
	news := !was || s.refusedAt != at
	s.refused, s.refusedAt = true, at
	return news
}

// follows reports whether the informer's content is current.
func (s *secretSpace) follows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.informer.HasSynced() && (!s.refused || s.refusedAt != s.informer.LastSyncResourceVersion())
}

package reconcile

import (
	"context"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// published remembers the version of each publication that has the wanted content. An unchanged publication is not read
// again, because its metadata is watched.
type published struct {
	mu sync.Mutex
	by map[v1beta1.PublishedReference]shown
}

type shown struct {
	version string
	content map[string]any
}

func newPublished() *published { return &published{by: map[v1beta1.PublishedReference]shown{}} }

func (s *published) keep(p Publication, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[p.ref()] = shown{version, p.Content}
}

func (s *published) forget(ref v1beta1.PublishedReference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, ref)
}

// unchanged reports whether the cached version of a publication has the wanted content.
func (r *reconciler[T, D]) unchanged(ctx context.Context, p Publication) bool {
	if p.Kind.Kind != sources.ConfigMap {
		return false // other kinds are not watched
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(p.Kind)
	if r.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Name}, m) != nil {
		return false
	}
	r.published.mu.Lock()
	defer r.published.mu.Unlock()
	was, known := r.published.by[p.ref()]
	return known && was.version == m.GetResourceVersion() && reflect.DeepEqual(was.content, p.Content)
}

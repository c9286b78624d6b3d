package plan

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// snapshot is the state of a cluster as if the files were applied. Writes change only the snapshot.
type snapshot struct {
	scheme *runtime.Scheme
	// behind reads Secrets, ConfigMaps and Namespaces that are not in the files. It is nil without a cluster.
	behind client.Reader

	mu      sync.Mutex
	version int
	kinds   map[schema.GroupVersionKind]*shelf
}

// shelf has the objects of one kind.
type shelf struct {
	objects map[client.ObjectKey]client.Object
	extract map[string]client.IndexerFunc
	index   map[string]map[string]map[client.ObjectKey]bool // object keys by index name and index value
}

func newSnapshot(behind client.Reader) (*snapshot, error) {
	s := &snapshot{scheme: runtime.NewScheme(), behind: behind, kinds: map[schema.GroupVersionKind]*shelf{}}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1beta1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(s.scheme); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *snapshot) shelf(kind schema.GroupVersionKind) *shelf {
	if s.kinds[kind] == nil {
		s.kinds[kind] = &shelf{
			objects: map[client.ObjectKey]client.Object{}, extract: map[string]client.IndexerFunc{},
			index: map[string]map[string]map[client.ObjectKey]bool{},
		}
	}
	return s.kinds[kind]
}

// put stores a copy of an object, and replaces an object of the same name.
func (s *snapshot) put(obj client.Object) error {
	kind, err := s.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	obj.SetResourceVersion("plan-" + strconv.Itoa(s.version))
	stored, is := obj.DeepCopyObject().(client.Object)
	if !is {
		return fmt.Errorf("a %s is not an object", kind.Kind)
	}
	s.shelf(kind).put(stored)
	return nil
}

func (h *shelf) put(obj client.Object) {
	key := client.ObjectKeyFromObject(obj)
	if old := h.objects[key]; old != nil {
		for name := range h.extract {
			h.unlist(name, old)
		}
	}
	h.objects[key] = obj
	for name := range h.extract {
		h.enlist(name, obj)
	}
}

func (h *shelf) enlist(name string, obj client.Object) {
	for _, value := range h.extract[name](obj) {
		if h.index[name][value] == nil {
			h.index[name][value] = map[client.ObjectKey]bool{}
		}
		h.index[name][value][client.ObjectKeyFromObject(obj)] = true
	}
}

func (h *shelf) unlist(name string, obj client.Object) {
	for _, value := range h.extract[name](obj) {
		delete(h.index[name][value], client.ObjectKeyFromObject(obj))
	}
}

// IndexField implements client.FieldIndexer.
func (s *snapshot) IndexField(_ context.Context, obj client.Object, name string, extract client.IndexerFunc) error {
	kind, err := s.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.shelf(kind)
	h.extract[name], h.index[name] = extract, map[string]map[client.ObjectKey]bool{}
	for _, o := range h.objects {
		h.enlist(name, o)
	}
	return nil
}

// Get implements client.Reader.
func (s *snapshot) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	kind, err := s.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	stored := s.shelf(kind).objects[key]
	s.mu.Unlock()
	if stored != nil {
		return copyInto(stored, obj)
	}
	if s.behind != nil && kind.Group != v1beta1.GroupVersion.Group {
		err := s.behind.Get(ctx, key, obj, opts...)
		if kind.Kind == "CustomResourceDefinition" && apierrors.IsForbidden(err) {
			obj.SetName(key.Name) // a plan may have no permission to read it; assume that it is not being deleted
			return nil
		}
		return err
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind)}, key.Name)
}

// copyInto copies an object. If obj is a PartialObjectMetadata, it copies only the metadata.
func copyInto(stored, obj client.Object) error {
	if m, partial := obj.(*metav1.PartialObjectMetadata); partial {
		accessor, err := meta.Accessor(stored.DeepCopyObject())
		if err != nil {
			return err
		}
		m.ObjectMeta = metav1.ObjectMeta{
			Name: accessor.GetName(), Namespace: accessor.GetNamespace(), UID: accessor.GetUID(),
			ResourceVersion: accessor.GetResourceVersion(), Labels: accessor.GetLabels(), Annotations: accessor.GetAnnotations(),
			DeletionTimestamp: accessor.GetDeletionTimestamp(),
		}
		return nil
	}
	from, to := reflect.ValueOf(stored.DeepCopyObject()), reflect.ValueOf(obj)
	if from.Type() != to.Type() {
		return fmt.Errorf("a %T was requested, but a %T exists", obj, stored)
	}
	to.Elem().Set(from.Elem())
	return nil
}

// List implements client.Reader. It supports at most one index, which is enough for the reconcilers.
func (s *snapshot) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if m, partial := list.(*metav1.PartialObjectMetadataList); partial {
		return s.listMetadata(ctx, m, o, opts...)
	}
	kind, err := s.GroupVersionKindFor(list)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.shelf(kind).selected(o.FieldSelector)
	if err != nil {
		return err
	}
	items := make([]runtime.Object, len(keys))
	for i, key := range keys {
		items[i] = s.shelf(kind).objects[key].DeepCopyObject()
	}
	return meta.SetList(list, items)
}

// listMetadata lists the objects of another API's kind in the files and the cluster, by label.
func (s *snapshot) listMetadata(ctx context.Context, list *metav1.PartialObjectMetadataList, o client.ListOptions, opts ...client.ListOption) error {
	kind := list.GroupVersionKind()
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	if s.behind != nil {
		if err := s.behind.List(ctx, list, opts...); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, obj := range s.shelf(kind).objects {
		list.Items = slices.DeleteFunc(list.Items, func(m metav1.PartialObjectMetadata) bool { return client.ObjectKeyFromObject(&m) == key })
		if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		var m metav1.PartialObjectMetadata
		if err := copyInto(obj, &m); err != nil {
			return err
		}
		list.Items = append(list.Items, m)
	}
	return nil
}

func (h *shelf) selected(by fields.Selector) ([]client.ObjectKey, error) {
	var keys []client.ObjectKey
	if by == nil || by.Empty() {
		for key := range h.objects {
			keys = append(keys, key)
		}
	} else {
		asked := by.Requirements()
		if len(asked) != 1 || h.extract[asked[0].Field] == nil {
			return nil, fmt.Errorf("there is no index for %s", by)
		}
		for key := range h.index[asked[0].Field][asked[0].Value] {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) })
	return keys, nil
}

// Patch implements client.Writer. obj already has the result of the patch.
func (s *snapshot) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return s.put(obj)
}

// Status implements client.StatusClient.
func (s *snapshot) Status() client.SubResourceWriter { return statusOf{s} }

type statusOf struct{ *snapshot }

// Patch implements client.SubResourceWriter.
func (s statusOf) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.put(obj)
}

// GroupVersionKindFor implements client.Client.
func (s *snapshot) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	if m, partial := obj.(*metav1.PartialObjectMetadata); partial {
		return m.GroupVersionKind(), nil
	}
	kinds, _, err := s.scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

// Scheme implements client.Client.
func (s *snapshot) Scheme() *runtime.Scheme { return s.scheme }

// The other methods of client.Client return an error, so that a first use by a reconciler is noticed.
var _ client.Client = (*snapshot)(nil)

func refuse(verb string) error { return fmt.Errorf("a plan does not support %s", verb) }

// Create implements client.Writer.
func (s *snapshot) Create(context.Context, client.Object, ...client.CreateOption) error {
	return refuse("Create")
}

// Update implements client.Writer.
func (s *snapshot) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return refuse("Update")
}

// Delete implements client.Writer.
func (s *snapshot) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return refuse("Delete")
}

// DeleteAllOf implements client.Writer.
func (s *snapshot) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return refuse("DeleteAllOf")
}

// Apply implements client.Writer.
func (s *snapshot) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return refuse("Apply")
}

// SubResource implements client.SubResourceClientConstructor.
func (s *snapshot) SubResource(string) client.SubResourceClient { return noSubResource{statusOf{s}} }

// RESTMapper implements client.Client.
func (s *snapshot) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// IsObjectNamespaced implements client.Client.
func (s *snapshot) IsObjectNamespaced(runtime.Object) (bool, error) {
	return false, refuse("IsObjectNamespaced")
}

// Create implements client.SubResourceWriter.
func (s statusOf) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return refuse("Create")
}

// Update implements client.SubResourceWriter.
func (s statusOf) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return refuse("Update")
}

// Apply implements client.SubResourceWriter.
func (s statusOf) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return refuse("Apply")
}

type noSubResource struct{ client.SubResourceWriter }

// Get implements client.SubResourceReader.
func (noSubResource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return refuse("Get of a subresource")
}

package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/manifest"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// world has all inputs of a plan.
type world struct {
	options  Options
	schemas  *manifest.Schemas
	snapshot *snapshot

	planned            []planned
	declaredKeyServers []string
	connected          []string
	ignored            int // manifests of other kinds
	seen               map[string]manifest.Source
	uids               int
	// made is the creation time of all new objects. Objects that are applied together have the same age, so the order of
	// their names decides conflicts.
	made metav1.Time
}

// planned is a declared object of the plan.
type planned struct {
	object reconcile.Object
	kind   string
}

func (p planned) name() string { return seenKey(p.kind, p.object) }

func newWorld(o Options) (*world, error) {
	schemas, err := manifest.NewSchemas()
	if err != nil {
		return nil, err
	}
	s, err := newSnapshot(o.Cluster)
	return &world{options: o, schemas: schemas, snapshot: s, seen: map[string]manifest.Source{}}, err
}

// load fills the snapshot: first from the cluster, then from the files, then from the command line.
func (w *world) load(ctx context.Context) error {
	manifests, err := manifest.Read(ctx, w.options.Files, w.options.Stdin)
	if err != nil {
		return err
	}
	if err := w.loadCluster(ctx); err != nil {
		return err
	}
	w.made = metav1.NewTime(w.options.Clock.Now())
	for _, m := range manifests {
		if err := w.add(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.Source, err)
		}
	}
	if len(w.planned) == 0 && len(w.declaredKeyServers) == 0 {
		return errNothing
	}
	if w.options.Access != nil {
		if err := w.override(ctx, w.options.Access); err != nil {
			return err
		}
	}
	return w.loadNamespaces(ctx)
}

func (w *world) loadCluster(ctx context.Context) error {
	if w.options.Cluster == nil {
		return nil
	}
	for _, kind := range v1beta1.Kinds {
		list, err := w.listOf(ctx, kind)
		if err != nil {
			return fmt.Errorf("read the cluster: %w", err)
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			obj, is := item.(client.Object)
			if !is {
				return fmt.Errorf("a %T is not an object", item)
			}
			obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			return w.snapshot.put(obj)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// listOf lists the objects of a kind. With the CRDs of an older release, a cluster serves only the deprecated version.
// Without CRDs, the list is empty.
func (w *world) listOf(ctx context.Context, kind v1beta1.Kind) (client.ObjectList, error) {
	missing := func(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }
	list := kind.NewList()
	if err := w.options.Cluster.List(ctx, list); !missing(err) {
		return list, err
	}
	deprecated := &unstructured.UnstructuredList{}
	deprecated.SetGroupVersionKind(v1beta1.Deprecated.WithKind(kind.Name + "List"))
	err := w.options.Cluster.List(ctx, deprecated)
	if missing(err) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	return list, runtime.DefaultUnstructuredConverter.FromUnstructured(deprecated.UnstructuredContent(), list)
}

// add adds one manifest to the snapshot.
func (w *world) add(ctx context.Context, m manifest.Manifest) error {
	u := m.Object
	core := slices.Contains([]string{"Secret", "ConfigMap", "Namespace"}, u.GetKind())
	var err error
	switch {
	case u.GroupVersionKind().Group == v1beta1.GroupVersion.Group:
		err = w.addOurs(ctx, m)
	case u.GetAPIVersion() == "v1" && core:
		err = w.addSource(u)
	default:
		w.ignored++
		return nil
	}
	if err != nil {
		return err
	}
	key := seenKey(u.GetKind(), u)
	if first, twice := w.seen[key]; twice {
		return fmt.Errorf("%s is already defined in %s", key, first)
	}
	w.seen[key] = m.Source
	return nil
}

// seenKey returns a unique key for an object in the files. The key has no API group, because all kinds that a plan
// reads have different names.
func seenKey(kind string, obj client.Object) string {
	return kind + " " + strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/")
}

// addOurs validates an object of this API like a kube-apiserver, and overlays it on the object in the cluster.
func (w *world) addOurs(ctx context.Context, m manifest.Manifest) error {
	u := m.Object
	if err := w.schemas.Recognize(u); err != nil {
		return err
	}
	if w.schemas.Namespaced(u.GetKind()) && u.GetNamespace() == "" {
		u.SetNamespace(w.options.Namespace)
	}
	name := seenKey(u.GetKind(), u)
	if err := w.schemas.Complete(u); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	obj, err := w.typed(u)
	if err != nil {
		return fmt.Errorf("%s: %w", name, w.orSays(ctx, u, err))
	}
	old, err := w.existing(ctx, obj)
	if err != nil {
		return err
	}
	if err := w.schemas.Validate(ctx, u, old); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if obj, err = w.typed(w.overlay(u, old)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if p, is := obj.(reconcile.Object); is {
		w.planned = append(w.planned, planned{object: p, kind: u.GetKind()})
	} else {
		w.declaredKeyServers = append(w.declaredKeyServers, obj.GetName())
	}
	return w.snapshot.put(obj)
}

// orSays returns the schema's error about a wrong object, or else err.
func (w *world) orSays(ctx context.Context, u *unstructured.Unstructured, err error) error {
	if said := w.schemas.Validate(ctx, u, nil); said != nil {
		return said
	}
	return err
}

func (w *world) typed(u *unstructured.Unstructured) (client.Object, error) {
	made, err := w.snapshot.scheme.New(u.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	obj, is := made.(client.Object)
	if !is {
		return nil, fmt.Errorf("%s is not an object", u.GetKind())
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		// The converter's error names no field and may quote a value.
		return nil, cmp.Or(manifest.CheckType(u, obj), errors.New("does not match the schema of a "+u.GetKind()))
	}
	obj.GetObjectKind().SetGroupVersionKind(u.GroupVersionKind())
	return obj, nil
}

// existing returns the object in the cluster, or nil.
func (w *world) existing(ctx context.Context, obj client.Object) (*unstructured.Unstructured, error) {
	if w.options.Cluster == nil {
		return nil, nil //nolint:nilnil // without a cluster there is no object, and no error
	}
	have, is := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	if !is {
		return nil, fmt.Errorf("a %T is not an object", obj)
	}
	err := w.snapshot.Get(ctx, client.ObjectKeyFromObject(obj), have)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // not found is no error
	}
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(have)
	return &unstructured.Unstructured{Object: content}, err
}

// authored are the metadata fields that a manifest sets.
var authored = []string{"name", "namespace", "labels", "annotations", "finalizers", "ownerReferences"}

// overlay returns the object as if its manifest was applied: the spec is replaced, other fields stay. A new object gets
// the creation time w.made.
func (w *world) overlay(u, old *unstructured.Unstructured) *unstructured.Unstructured {
	if old == nil {
		out := u.DeepCopy()
		metadata, _, _ := unstructured.NestedMap(u.Object, "metadata")
		// An API server ignores other metadata of a new object, for example a deletion timestamp in the file.
		maps.DeleteFunc(metadata, func(name string, _ any) bool { return !slices.Contains(authored, name) })
		out.Object["metadata"] = metadata
		out.SetUID(w.uid())
		out.SetGeneration(1)
		out.SetCreationTimestamp(w.made)
		return out
	}
	out := old.DeepCopy()
	out.SetGroupVersionKind(u.GroupVersionKind())
	if !reflect.DeepEqual(out.Object["spec"], u.Object["spec"]) {
		out.SetGeneration(old.GetGeneration() + 1)
	}
	out.Object["spec"] = u.Object["spec"]
	annotations := map[string]string{}
	for name, value := range old.GetAnnotations() {
		if !applied(old, name) {
			annotations[name] = value
		}
	}
	maps.Copy(annotations, u.GetAnnotations())
	out.SetAnnotations(annotations)
	return out
}

// applied reports whether an earlier manifest has set an annotation in the cluster. If so, applying a manifest without
// the annotation removes it. applied assumes that the field owner that applied the spec will apply the new manifest.
func applied(old *unstructured.Unstructured, annotation string) bool {
	if manifest := old.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; manifest != "" {
		var last metav1.PartialObjectMetadata
		if json.Unmarshal([]byte(manifest), &last) == nil {
			if _, is := last.Annotations[annotation]; is {
				return true
			}
		}
	}
	var by, others bool
	for _, entry := range old.GetManagedFields() {
		var owned map[string]any
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		if _, is, _ := unstructured.NestedMap(owned, "f:metadata", "f:annotations", "f:"+annotation); !is {
			continue
		}
		if _, spec := owned["f:spec"]; spec && entry.Operation == metav1.ManagedFieldsOperationApply {
			by = true
		} else {
			others = true
		}
	}
	return by && !others
}

// addSource adds an object to which planned objects may refer.
func (w *world) addSource(u *unstructured.Unstructured) error {
	obj, err := w.typed(u)
	if err != nil {
		return fmt.Errorf("%s: %w", seenKey(u.GetKind(), u), err)
	}
	if obj.GetName() == "" {
		return errors.New("metadata.name is missing")
	}
	if obj.GetNamespace() == "" && u.GetKind() != "Namespace" {
		obj.SetNamespace(w.options.Namespace)
		u.SetNamespace(w.options.Namespace)
	}
	if secret, is := obj.(*corev1.Secret); is {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		for key, text := range secret.StringData {
			secret.Data[key] = []byte(text)
		}
	}
	if n, is := obj.(*corev1.Namespace); is {
		label(n)
	}
	obj.SetUID(w.uid())
	return w.snapshot.put(obj)
}

// loadNamespaces creates the namespaces that exist neither in the files nor in the cluster. They have only the label
// that every namespace has.
func (w *world) loadNamespaces(ctx context.Context) error {
	for _, p := range w.planned {
		n := &metav1.PartialObjectMetadata{}
		n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		err := w.snapshot.Get(ctx, client.ObjectKey{Name: p.object.GetNamespace()}, n)
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("read the cluster: %w", err)
		}
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.object.GetNamespace(), UID: w.uid()}}
		label(made)
		if err := w.snapshot.put(made); err != nil {
			return err
		}
	}
	return nil
}

func label(n *corev1.Namespace) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

func (w *world) uid() types.UID {
	w.uids++
	return types.UID("plan-" + strconv.Itoa(w.uids))
}

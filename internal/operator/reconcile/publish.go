package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// Publisher is implemented by adapters whose objects tell others in the cluster what
// they stand for, once it was read back.
type Publisher[T Object] interface {
	// Publishes names what the declaration asks for, resolved as far as the object
	// says it by itself: a change of one of these wakes the object.
	Publishes(obj T) []v1alpha1.PublishedReference
	// Published is all that is to be there, from the status that was just recorded.
	Published(ctx context.Context, in Input, obj T) ([]Publication, error)
	// Publications is where the status has what is there.
	Publications(obj T) *[]v1alpha1.PublishedReference
}

// NamespaceSelector is implemented by adapters whose objects publish in namespaces that
// are picked by their labels: they are woken when those change.
type NamespaceSelector[T Object] interface {
	SelectsNamespaces(obj T) bool
}

// Publication is an object of the cluster that the manager writes, whole.
type Publication struct {
	// Kind of the object. Without a version it is the one that the API server prefers.
	Kind            schema.GroupVersionKind
	Namespace, Name string
	// Content are its fields besides the metadata, as JSON has them.
	Content map[string]any
}

// ConfigMap is a publication of texts that are no secret.
func ConfigMap(namespace, name string, data map[string]string) Publication {
	texts := make(map[string]any, len(data))
	for key, text := range data {
		texts[key] = text
	}
	return Publication{
		Kind: corev1.SchemeGroupVersion.WithKind(sources.ConfigMap), Namespace: namespace, Name: name,
		Content: map[string]any{"data": texts},
	}
}

func (p Publication) ref() v1alpha1.PublishedReference {
	return v1alpha1.PublishedReference{Kind: p.Kind.Kind, APIVersion: p.Kind.GroupVersion().String(), Namespace: p.Namespace, Name: p.Name}
}

// retryPublication is when to look again at what no event announces: a right of the
// manager's, or somebody else's object that stands in the way.
const retryPublication = 30 * time.Second

// publish has what the object publishes be there, and no more. It counts only where
// the external object agrees with the declaration: what was published before stays
// otherwise.
func (r *reconciler[T, D]) publish(ctx context.Context, p *pass[T, D], res *result) error {
	pub, is := any(r.adapter).(Publisher[T])
	if !is || p.facts.Deleting || p.facts.Management == v1alpha1.Observe || !p.verified(p.status) {
		return nil
	}
	problem, err := connection.AsProblem(ctx, r.republish(ctx, p, pub))
	if err != nil || problem == nil {
		return err
	}
	now, before := status.Stamp(r.Clock.Now()), conditionOf(p.read)
	status.Conclude(&p.status.Conditions, p.obj.GetGeneration(), now, status.Conclusion{Reason: problem.Reason, Message: problem.Message})
	if before == nil || before.Reason != string(problem.Reason) || before.Message != problem.Message {
		r.say(p, status.ReasonEvent(problem.Reason, false, problem.Message))
	}
	r.population.Move(client.ObjectKeyFromObject(p.obj), string(problem.Reason))
	res.Reason, res.done, res.Again = problem.Reason, false, retryPublication
	return nil
}

func (r *reconciler[T, D]) republish(ctx context.Context, p *pass[T, D], pub Publisher[T]) error {
	wanted, err := pub.Published(ctx, p.in, p.obj)
	if err != nil {
		return err
	}
	for i, w := range wanted {
		if wanted[i].Kind, err = r.served(w); err != nil {
			return err
		}
	}
	there := pub.Publications(p.obj)
	var failed []error
	for _, w := range wanted { // one that cannot be written keeps no other from it
		if err := r.show(ctx, p.obj, w); err != nil {
			failed = append(failed, err)
			continue
		}
		if !slices.Contains(*there, w.ref()) {
			*there = append(*there, w.ref())
		}
	}
	for _, old := range slices.Clone(*there) {
		if slices.ContainsFunc(wanted, func(w Publication) bool { return w.ref() == old }) {
			continue
		}
		if err := r.hide(ctx, p.obj, old); err != nil {
			return err
		}
		*there = slices.DeleteFunc(*there, func(ref v1alpha1.PublishedReference) bool { return ref == old })
	}
	return firstOf(failed)
}

// firstOf says the first failure, and how many others there are.
func firstOf(failed []error) error {
	var p *connection.Problem
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == 1 || !errors.As(failed[0], &p):
		return failed[0]
	}
	more := *p
	more.Message = fmt.Sprintf("%s; and %d more like it", p.Message, len(failed)-1)
	return &more
}

// republished reports why what is published is not what it should be by now, so that
// nothing is retired that somebody may still have to find there.
func (r *reconciler[T, D]) republished(ctx context.Context, p *pass[T, D]) (*connection.Problem, error) {
	pub, is := any(r.adapter).(Publisher[T])
	if !is || r.Identity.Planned {
		return nil, nil //nolint:nilnil // nothing is published, and that is no mistake
	}
	return connection.AsProblem(ctx, r.republish(ctx, p, pub))
}

// served is the kind of a publication in a version that the API server serves.
func (r *reconciler[T, D]) served(w Publication) (schema.GroupVersionKind, error) {
	if w.Kind.Version != "" {
		return w.Kind, nil
	}
	mapping, err := r.Client.RESTMapper().RESTMapping(w.Kind.GroupKind())
	if meta.IsNoMatchError(err) {
		return w.Kind, connection.NewProblem(v1alpha1.ReasonUnsupported, "%s is not published: this API server does not serve %s", w.ref(), w.Kind.GroupKind())
	}
	if err != nil {
		return w.Kind, fmt.Errorf("find out how %s is served: %w", w.Kind.GroupKind(), err)
	}
	return mapping.GroupVersionKind, nil
}

// withdraw takes away what a deleted object has published. Where the manager may not,
// the object goes all the same.
func (r *reconciler[T, D]) withdraw(ctx context.Context, p *pass[T, D]) error {
	pub, is := any(r.adapter).(Publisher[T])
	if !is || p.facts.KindRemoved || r.Identity.Planned { // the next installation finds its own again
		return nil
	}
	all := slices.Clone(*pub.Publications(p.obj))
	for _, ref := range pub.Publishes(p.obj) { // of a status that was lost, too
		if !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	for _, old := range all {
		err := r.hide(ctx, p.obj, old)
		problem, other := connection.AsProblem(ctx, err)
		if other != nil {
			return other
		}
		if problem != nil {
			p.log.Info("what was published stays", "object", old.String(), "cause", problem.Message)
		}
	}
	return nil
}

// show has one publication be there as it is wanted.
func (r *reconciler[T, D]) show(ctx context.Context, obj T, w Publication) error {
	ref, me := w.ref(), r.publisher(obj)
	if r.unchanged(ctx, w) {
		return nil
	}
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(w.Kind)
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: w.Name}, have)
	switch {
	case apierrors.IsNotFound(err):
		made := &unstructured.Unstructured{Object: map[string]any{}}
		made.SetGroupVersionKind(w.Kind)
		made.SetNamespace(w.Namespace)
		made.SetName(w.Name)
		w.onto(made, me)
		if err := r.Client.Create(ctx, made); err != nil {
			return unpublished(ref, err)
		}
		r.published.keep(w, made.GetResourceVersion())
		return nil
	case err != nil:
		return unpublished(ref, err)
	}
	if by := have.GetAnnotations()[v1alpha1.AnnotationPublishedBy]; by != me && !r.vanished(ctx, by) {
		return taken(ref, by)
	}
	now := have.DeepCopy()
	w.onto(now, me)
	if !equality.Semantic.DeepEqual(have, now) {
		err := r.Client.Patch(ctx, now, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
		if frozen, _, _ := unstructured.NestedBool(have.Object, "immutable"); frozen && apierrors.IsInvalid(err) {
			return r.thaw(ctx, w.ref(), have)
		}
		if err != nil {
			return unpublished(ref, err)
		}
	}
	r.published.keep(w, now.GetResourceVersion())
	return nil
}

// thaw deletes a publication that somebody has made immutable. The next pass makes it
// anew.
func (r *reconciler[T, D]) thaw(ctx context.Context, ref v1alpha1.PublishedReference, have client.Object) error {
	version := have.GetResourceVersion()
	if err := r.Client.Delete(ctx, have, client.Preconditions{ResourceVersion: &version}); client.IgnoreNotFound(err) != nil {
		return unpublished(ref, err)
	}
	return &connection.Problem{Reason: v1alpha1.ReasonProgressing, Again: time.Second, Message: ref.String() + " was immutable, and is made anew"}
}

// vanished reports whether whoever has published something is an object of this kind
// that is no longer there.
func (r *reconciler[T, D]) vanished(ctx context.Context, by string) bool {
	parts := strings.Split(by, "/")
	if len(parts) != 3 || parts[0] != r.kind.Name {
		return false
	}
	return apierrors.IsNotFound(r.Live.Get(ctx, client.ObjectKey{Namespace: parts[1], Name: parts[2]}, r.New()))
}

// hide deletes one publication, if it is still the object's.
func (r *reconciler[T, D]) hide(ctx context.Context, obj T, old v1alpha1.PublishedReference) error {
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(schema.FromAPIVersionAndKind(old.APIVersion, old.Kind))
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: old.Namespace, Name: old.Name}, have)
	if err == nil && have.GetAnnotations()[v1alpha1.AnnotationPublishedBy] == r.publisher(obj) {
		version := have.GetResourceVersion()
		err = r.Client.Delete(ctx, have, client.Preconditions{ResourceVersion: &version})
	}
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		err = nil
	}
	if err == nil {
		r.published.forget(old)
	}
	return unpublished(old, err)
}

// publisher spells an object as one that publishes.
func (r *reconciler[T, D]) publisher(obj T) string {
	return r.kind.Name + "/" + obj.GetNamespace() + "/" + obj.GetName()
}

// onto lays the content over an object, in place of any other.
func (p Publication) onto(obj *unstructured.Unstructured, publisher string) {
	for field := range obj.Object {
		if _, wanted := p.Content[field]; !wanted && !slices.Contains([]string{"apiVersion", "kind", "metadata"}, field) {
			delete(obj.Object, field)
		}
	}
	maps.Copy(obj.Object, p.Content)
	annotations, labels := maps.Clone(obj.GetAnnotations()), maps.Clone(obj.GetLabels())
	obj.SetAnnotations(with(annotations, v1alpha1.AnnotationPublishedBy, publisher))
	obj.SetLabels(with(labels, "app.kubernetes.io/managed-by", "keyserver-operator"))
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// unpublished says what keeps a publication from being written.
func unpublished(ref v1alpha1.PublishedReference, err error) error {
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return connection.NewProblem(v1alpha1.ReasonUnsupported, "%s is not published: this API server does not serve %s %s", ref, ref.APIVersion, ref.Kind)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return connection.NewProblem(v1alpha1.ReasonDependencyNotReady, "%s is not published: its namespace is being deleted", ref)
	case apierrors.IsForbidden(err):
		return connection.NewProblem(v1alpha1.ReasonDependencyNotReady,
			"%s is not published: the manager's service account may not write it; let it, as docs/install.md says under \"Namespaces\": %s", ref, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return connection.NewProblem(v1alpha1.ReasonInvalidSpec, "%s is not published: %s", ref, err)
	case apierrors.IsNotFound(err): // its namespace
		return connection.NewProblem(v1alpha1.ReasonDependencyNotReady, "%s is not published: %s", ref, err)
	default:
		return fmt.Errorf("publish %s: %w", ref, err)
	}
}

func taken(ref v1alpha1.PublishedReference, by string) error {
	who := "somebody else made it"
	if by != "" {
		who = by + " publishes it"
	}
	return connection.NewProblem(v1alpha1.ReasonConflict, "%s exists already and %s; declare another name, or delete it", ref, who)
}

func conditionOf(obj Object) *metav1.Condition {
	_, status := obj.Managed()
	return meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
}

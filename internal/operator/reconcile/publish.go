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

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// Publisher is implemented by adapters whose objects publish verified data in the cluster.
type Publisher[T Object] interface {
	// Publishes returns the publications that the object's own fields name. A change of a publication enqueues the object.
	Publishes(obj T) []v1beta1.PublishedReference
	// Published returns the complete publications, made from the status that the pass has just recorded.
	Published(ctx context.Context, in Input, obj T) ([]Publication, error)
	// Publications returns the status field that lists what is published.
	Publications(obj T) *[]v1beta1.PublishedReference
}

// NamespaceSelector is implemented by adapters whose objects publish in all namespaces with certain labels. Changes of
// namespaces and their labels enqueue these objects.
type NamespaceSelector[T Object] interface {
	SelectsNamespaces(obj T) bool
}

// Publication is a Kubernetes object whose content the manager writes completely.
type Publication struct {
	// Kind is the kind of the object. If it has no version, the API server's preferred version is used.
	Kind            schema.GroupVersionKind
	Namespace, Name string
	// Content has all fields except the metadata, as JSON values.
	Content map[string]any
}

// ConfigMap returns a publication of texts that are not secret.
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

func (p Publication) ref() v1beta1.PublishedReference {
	return v1beta1.PublishedReference{Kind: p.Kind.Kind, APIVersion: p.Kind.GroupVersion().String(), Namespace: p.Namespace, Name: p.Name}
}

// retryPublication is the pause before a retry if no event will announce the change: the manager lacks a permission, or
// an object of another client has the same name.
const retryPublication = 30 * time.Second

// publish creates, corrects and deletes the publications of the object. If the object is not verified, the earlier
// publications stay.
func (r *reconciler[T, D]) publish(ctx context.Context, p *pass[T, D], res *result) error {
	pub, is := any(r.adapter).(Publisher[T])
	if !is || p.facts.Deleting || p.facts.Management == v1beta1.Observe || !p.verified(p.status) {
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
	res.Reason, res.done, res.RequeueAfter = problem.Reason, false, retryPublication
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
	for _, w := range wanted { // an error does not stop the other publications
		if err := r.writePublication(ctx, p.obj, w); err != nil {
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
		if err := r.deletePublication(ctx, p.obj, old); err != nil {
			return err
		}
		*there = slices.DeleteFunc(*there, func(ref v1beta1.PublishedReference) bool { return ref == old })
	}
	return firstOf(failed)
}

// firstOf returns the first error, with the number of further errors.
func firstOf(failed []error) error {
	var p *connection.Problem
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == 1 || !errors.As(failed[0], &p):
		return failed[0]
	}
	more := *p
	more.Message = fmt.Sprintf("%s; %d more publications failed", p.Message, len(failed)-1)
	return &more
}

// republished updates the object's publications before a replaced object of the key server is removed. If it returns a
// problem, the replaced object must stay, because readers of an old publication may still need it.
func (r *reconciler[T, D]) republished(ctx context.Context, p *pass[T, D]) (*connection.Problem, error) {
	pub, is := any(r.adapter).(Publisher[T])
	if !is || r.Identity.Planned {
		return nil, nil //nolint:nilnil // nothing is published, and that is not an error
	}
	return connection.AsProblem(ctx, r.republish(ctx, p, pub))
}

// served adds a version that the API server serves to the kind of a publication.
func (r *reconciler[T, D]) served(w Publication) (schema.GroupVersionKind, error) {
	if w.Kind.Version != "" {
		return w.Kind, nil
	}
	mapping, err := r.Client.RESTMapper().RESTMapping(w.Kind.GroupKind())
	if meta.IsNoMatchError(err) {
		return w.Kind, connection.NewProblem(v1beta1.ReasonUnsupported, "%s is not published: this API server does not serve %s; enable that API, or declare another publication", w.ref(), w.Kind.GroupKind())
	}
	if err != nil {
		return w.Kind, fmt.Errorf("find out how %s is served: %w", w.Kind.GroupKind(), err)
	}
	return mapping.GroupVersionKind, nil
}

// withdraw deletes the publications of a deleted object. A missing permission does not stop the deletion of the object.
func (r *reconciler[T, D]) withdraw(ctx context.Context, p *pass[T, D]) error {
	pub, is := any(r.adapter).(Publisher[T])
	if !is || p.facts.KindRemoved || r.Identity.Planned { // a new installation finds the publications of a removed kind again
		return nil
	}
	all := slices.Clone(*pub.Publications(p.obj))
	for _, ref := range pub.Publishes(p.obj) { // they may not be in the status
		if !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	for _, old := range all {
		err := r.deletePublication(ctx, p.obj, old)
		problem, other := connection.AsProblem(ctx, err)
		if other != nil {
			return other
		}
		if problem != nil {
			p.log.Info("a publication could not be deleted and stays in the cluster", "object", old.String(), "cause", problem.Message)
		}
	}
	return nil
}

// writePublication creates or corrects one publication.
func (r *reconciler[T, D]) writePublication(ctx context.Context, obj T, w Publication) error {
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
	if by := have.GetAnnotations()[v1beta1.AnnotationPublishedBy]; by != me && !r.vanished(ctx, by) {
		return taken(ref, by)
	}
	now := have.DeepCopy()
	w.onto(now, me)
	if !equality.Semantic.DeepEqual(have, now) {
		err := r.Client.Patch(ctx, now, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
		if frozen, _, _ := unstructured.NestedBool(have.Object, "immutable"); frozen && apierrors.IsInvalid(err) {
			return r.deleteImmutable(ctx, w.ref(), have)
		}
		if err != nil {
			return unpublished(ref, err)
		}
	}
	r.published.keep(w, now.GetResourceVersion())
	return nil
}

// deleteImmutable deletes a publication that another client has made immutable. The next pass creates it again.
func (r *reconciler[T, D]) deleteImmutable(ctx context.Context, ref v1beta1.PublishedReference, have client.Object) error {
	version := have.GetResourceVersion()
	if err := r.Client.Delete(ctx, have, client.Preconditions{ResourceVersion: &version}); client.IgnoreNotFound(err) != nil {
		return unpublished(ref, err)
	}
	return &connection.Problem{Reason: v1beta1.ReasonProgressing, RequeueAfter: time.Second, Message: ref.String() + " was immutable and is created again"}
}

// vanished reports whether by names an object of this kind that no longer exists.
func (r *reconciler[T, D]) vanished(ctx context.Context, by string) bool {
	parts := strings.Split(by, "/")
	if len(parts) != 3 || parts[0] != r.kind.Name {
		return false
	}
	return apierrors.IsNotFound(r.Live.Get(ctx, client.ObjectKey{Namespace: parts[1], Name: parts[2]}, r.New()))
}

// deletePublication deletes one publication if the object is still its publisher.
func (r *reconciler[T, D]) deletePublication(ctx context.Context, obj T, old v1beta1.PublishedReference) error {
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(schema.FromAPIVersionAndKind(old.APIVersion, old.Kind))
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: old.Namespace, Name: old.Name}, have)
	if err == nil && have.GetAnnotations()[v1beta1.AnnotationPublishedBy] == r.publisher(obj) {
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

// publisher returns the value of the annotation that names the publisher.
func (r *reconciler[T, D]) publisher(obj T) string {
	return r.kind.Name + "/" + obj.GetNamespace() + "/" + obj.GetName()
}

// onto writes the content of the publication into an object and keeps the object's metadata.
func (p Publication) onto(obj *unstructured.Unstructured, publisher string) {
	for field := range obj.Object {
		if _, wanted := p.Content[field]; !wanted && !slices.Contains([]string{"apiVersion", "kind", "metadata"}, field) {
			delete(obj.Object, field)
		}
	}
	maps.Copy(obj.Object, p.Content)
	annotations, labels := maps.Clone(obj.GetAnnotations()), maps.Clone(obj.GetLabels())
	obj.SetAnnotations(with(annotations, v1beta1.AnnotationPublishedBy, publisher))
	obj.SetLabels(with(labels, "app.kubernetes.io/managed-by", "keyserver-operator"))
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// unpublished converts an error about a publication to a problem for the status.
func unpublished(ref v1beta1.PublishedReference, err error) error {
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return connection.NewProblem(v1beta1.ReasonUnsupported, "%s is not published: this API server does not serve %s %s; enable that API, or declare another publication", ref, ref.APIVersion, ref.Kind)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return connection.NewProblem(v1beta1.ReasonDependencyNotReady, "%s is not published: its namespace is being deleted", ref)
	case apierrors.IsForbidden(err):
		binding := "the ClusterRole keyserver-manager-trust-bundles"
		if ref.Kind == "ConfigMap" {
			binding = fmt.Sprintf("in namespace %q, with a RoleBinding, the ClusterRole keyserver-manager-publish", ref.Namespace)
		}
		return connection.NewProblem(v1beta1.ReasonDependencyNotReady,
			"%s is not published: the manager has no permission to write it; bind %s to its service account (docs/install.md, \"Open a namespace to the manager\"): %s", ref, binding, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return connection.NewProblem(v1beta1.ReasonInvalidSpec, "%s is not published: %s", ref, err)
	case apierrors.IsNotFound(err): // its namespace does not exist
		return connection.NewProblem(v1beta1.ReasonDependencyNotReady, "%s is not published: %s", ref, err)
	default:
		return fmt.Errorf("publish %s: %w", ref, err)
	}
}

func taken(ref v1beta1.PublishedReference, by string) error {
	who := "another client created it"
	if by != "" {
		who = by + " publishes it"
	}
	return connection.NewProblem(v1beta1.ReasonConflict, "%s exists already and %s; declare another name, or delete it", ref, who)
}

func conditionOf(obj Object) *metav1.Condition {
	_, status := obj.Managed()
	return meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady)
}

package managed

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/internal/link"
)

// Cluster is what every reconciler needs of the cluster.
type Cluster struct {
	Name     string        // in audit trails; empty where nobody named it
	Client   client.Client // reads from the cache
	Live     client.Reader // reads from the API server
	Recorder events.EventRecorder
	Clock    clock.Clock
	Identity *Identity
}

// KindRemoved reports whether a custom resource definition is being deleted,
// which deletes every object of its kind.
func (c Cluster) KindRemoved(ctx context.Context, crd string) (bool, error) {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := c.Live.Get(ctx, client.ObjectKey{Name: crd}, m)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("find out whether %s is being removed: %w", crd, err)
	}
	return !m.DeletionTimestamp.IsZero(), nil
}

// admitted returns nil if objects of a namespace may use a KeyServer.
func (c Cluster) admitted(ctx context.Context, ks *v1alpha1.KeyServer, namespace string) error {
	allowed, err := c.allowed(ctx, ks, namespace)
	if err != nil || allowed {
		return err
	}
	return link.NewProblem(v1alpha1.ReasonInvalidSpec,
		"namespace %q may not use KeyServer %q; its spec.allowedNamespaces says which may", namespace, ks.Name)
}

// allowed reports whether objects of a namespace may use a KeyServer.
func (c Cluster) allowed(ctx context.Context, ks *v1alpha1.KeyServer, namespace string) (bool, error) {
	who := ks.Spec.AllowedNamespaces
	if who == nil {
		return false, nil
	}
	if slices.Contains(who.Names, namespace) {
		return true, nil
	}
	if who.Selector == nil {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(who.Selector)
	if err != nil {
		return false, link.NewProblem(v1alpha1.ReasonDependencyNotReady,
			"KeyServer %q: spec.allowedNamespaces.selector is not a label selector: %s", ks.Name, err)
	}
	if selector.Empty() {
		return true, nil
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err := c.Client.Get(ctx, client.ObjectKey{Name: namespace}, m); err != nil {
		return false, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	return selector.Matches(labels.Set(m.Labels)), nil
}

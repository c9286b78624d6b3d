package reconcile

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
)

// Cluster has the Kubernetes clients and the settings of the reconcilers.
type Cluster struct {
	Name   string        // cluster name in audit logs; may be empty
	Client client.Client // reads from the cache
	Live   client.Reader // reads from the API server
	// Secrets reads the metadata of Secrets to watch them. nil disables the watch.
	Secrets  metadata.Interface
	Recorder events.EventRecorder
	Clock    clock.Clock
	Identity *Identity
	Issuer   *sources.Issuer // nil without a cluster
	Tracer   *tracing.Tracer // nil disables tracing
}

// KindRemoved reports whether a custom resource definition is being deleted, and with it every object of its kind.
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

package firstkeyserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// Keys of the ConfigMap.
const (
	ManifestKey     = "keyserver.yaml" // the manifest of the KeyServer
	FieldManagerKey = "fieldManager"   // optional
)

// bufferSize is the number of bytes in which the decoder recognizes JSON.
const bufferSize = 4096

// DefaultFieldManager is that of "kubectl apply --server-side".
const DefaultFieldManager = "kubectl"

// Annotation marks the ConfigMap when a KeyServer exists. Its value is the name of that KeyServer. With this mark, the
// manager creates none, so that a user can delete the KeyServer.
const Annotation = "trust.keyserver.dev/first-keyserver"

// Creator creates the KeyServer of a ConfigMap once, if the cluster has no KeyServer. Later it changes nothing.
//
// It applies the manifest as the field manager of the tool that will apply the KeyServer later. Otherwise that tool
// could not remove a field of the manifest.
type Creator struct {
	Client    client.Client
	Reader    client.Reader // reads without a cache
	ConfigMap types.NamespacedName
	Logger    *slog.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c Creator) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns when a KeyServer exists. A failed attempt is logged if its error is
// new, and repeated.
func (c Creator) Start(ctx context.Context) error {
	said := ""
	pauses := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 10 * time.Second}
	// Until fails only when ctx ends.
	_ = pauses.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, _ error) {
		err := c.Create(ctx)
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			c.Logger.WarnContext(ctx, "create the first KeyServer", "error", said)
		}
		return err == nil, nil
	})
	return nil
}

// Create creates the KeyServer, unless the ConfigMap is marked or the cluster has a KeyServer, and marks the ConfigMap.
func (c Creator) Create(ctx context.Context) error {
	source := &corev1.ConfigMap{}
	switch err := c.Reader.Get(ctx, c.ConfigMap, source); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("ConfigMap %s does not exist; apply the manifests of the installation again", c.ConfigMap)
	case err != nil:
		return fmt.Errorf("read ConfigMap %s: %w", c.ConfigMap, err)
	}
	existing := &v1beta1.KeyServerList{}
	if err := c.Reader.List(ctx, existing, client.Limit(1)); err != nil {
		return fmt.Errorf("list KeyServers: %w", err)
	}
	mark := source.Annotations[Annotation]
	switch {
	case mark != "" && len(existing.Items) == 0:
		c.Logger.WarnContext(ctx, "the cluster has no KeyServer, and the manager creates none, because one existed before; apply one",
			"before", mark, "configMap", c.ConfigMap.String(), "annotation", Annotation)
		return nil
	case mark != "":
		return nil
	case len(existing.Items) > 0 && !existing.Items[0].DeletionTimestamp.IsZero():
		return fmt.Errorf("KeyServer %s is being deleted; wait, or see its conditions", existing.Items[0].Name)
	case len(existing.Items) > 0:
		return c.mark(ctx, source, existing.Items[0].Name)
	}
	return c.create(ctx, source)
}

func (c Creator) create(ctx context.Context, source *corev1.ConfigMap) error {
	first, err := c.manifest(source)
	if err != nil {
		return err
	}
	owner := client.FieldOwner(DefaultFieldManager)
	if given := source.Data[FieldManagerKey]; given != "" {
		owner = client.FieldOwner(given)
	}
	if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(first), owner); err != nil {
		return fmt.Errorf("create the KeyServer of ConfigMap %s: %w", c.ConfigMap, err)
	}
	c.Logger.InfoContext(ctx, "created the first KeyServer", "name", first.GetName(), "configMap", c.ConfigMap.String())
	return c.mark(ctx, source, first.GetName())
}

// manifest returns the KeyServer of the ConfigMap. The API server validates its fields.
func (c Creator) manifest(source *corev1.ConfigMap) (*unstructured.Unstructured, error) {
	first, second := &unstructured.Unstructured{}, map[string]any{}
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(source.Data[ManifestKey]), bufferSize)
	if err := documents.Decode(&first.Object); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("ConfigMap %s: %s: %w", c.ConfigMap, ManifestKey, err)
	}
	one := errors.Is(documents.Decode(&second), io.EOF)
	if kind := first.GroupVersionKind().GroupKind(); !one || kind != v1beta1.GroupVersion.WithKind("KeyServer").GroupKind() || first.GetName() == "" {
		return nil, fmt.Errorf("ConfigMap %s: %s must have exactly one document, a KeyServer with metadata.name; correct it", c.ConfigMap, ManifestKey)
	}
	return first, nil
}

func (c Creator) mark(ctx context.Context, source *corev1.ConfigMap, name string) error {
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{Annotation: name}}})
	if err != nil {
		return err
	}
	if err := c.Client.Patch(ctx, source, client.RawPatch(types.MergePatchType, change)); err != nil {
		return fmt.Errorf("mark ConfigMap %s: %w", c.ConfigMap, err)
	}
	return nil
}

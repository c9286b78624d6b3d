package sources

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// The kinds of a Ref.
const (
	Secret    = "Secret"
	ConfigMap = "ConfigMap"
)

// Ref names a Secret or ConfigMap.
type Ref struct {
	Kind      string
	Namespace string
	Name      string
}

// String formats the Ref for messages.
func (s Ref) String() string { return s.Kind + " " + s.Namespace + "/" + s.Name }

// Key names one entry of a Secret or ConfigMap.
type Key struct {
	Ref
	Key string
}

// String formats the Key for messages.
func (k Key) String() string { return fmt.Sprintf("key %q of %s", k.Key, k.Ref) }

// Refs returns the Ref of a Key as a list. It is empty for a nil Key.
func (k *Key) Refs() []Ref {
	if k == nil {
		return nil
	}
	return []Ref{k.Ref}
}

// In returns the Key for a reference to a Secret or a ConfigMap in the object's own namespace. It returns nil if both
// references are nil.
func In(namespace string, secret, configMap *v1beta1.LocalKeyReference) *Key {
	within := func(local *v1beta1.LocalKeyReference) *v1beta1.NamespacedKeyReference {
		if local == nil {
			return nil
		}
		return &v1beta1.NamespacedKeyReference{Namespace: namespace, Name: local.Name, Key: local.Key}
	}
	return At(within(secret), within(configMap))
}

// At returns the Key for a reference to a Secret or a ConfigMap in any namespace. It returns nil if both references are
// nil.
func At(secret, configMap *v1beta1.NamespacedKeyReference) *Key {
	of := func(kind string, at *v1beta1.NamespacedKeyReference) *Key {
		return &Key{Ref{Kind: kind, Namespace: at.Namespace, Name: at.Name}, at.Key}
	}
	switch {
	case secret != nil:
		return of(Secret, secret)
	case configMap != nil:
		return of(ConfigMap, configMap)
	default:
		return nil
	}
}

// Reader reads values from Secrets and ConfigMaps. It caches and watches only their metadata. It watches metadata of
// Secrets only in namespaces in which objects refer to Secrets. It reads a value again when the version has changed.
type Reader struct {
	cached  client.Reader // cache of the metadata
	live    client.Reader
	secrets *secretWatch // nil if nothing is watched
	mu      sync.Mutex
	seen    map[Ref]reading
}

// reading has the values read from one version of a Secret or ConfigMap.
type reading struct {
	version string
	values  map[string][]byte
}

// New returns a Reader. cached has the metadata of ConfigMaps, and live reads from the API server. secrets watches the
// metadata of Secrets; if it is nil, every Secret is read when it is needed.
func New(cached, live client.Reader, secrets metadata.Interface) *Reader {
	return &Reader{cached: cached, live: live, secrets: newSecretWatch(secrets, ctrl.Log.WithName("secrets")), seen: map[Ref]reading{}}
}

// Start implements manager.Runnable. When ctx ends, it ends the watches of Secrets.
func (s *Reader) Start(ctx context.Context) error {
	<-ctx.Done()
	s.secrets.close()
	return nil
}

// Refer records the Secrets and ConfigMaps to which an object refers. For a deleted object there are none.
func (s *Reader) Refer(kind string, at types.NamespacedName, to []Ref) {
	s.secrets.refer(referrer{kind, at}, to)
}

// SecretChanges returns a source of events that enqueues the objects that read a changed Secret.
func (s *Reader) SecretChanges(readersOf handler.MapFunc) source.Source {
	return s.secrets.changes(readersOf)
}

// Version returns a string that is different for each version of a Secret or ConfigMap.
func (s *Reader) Version(ctx context.Context, src Ref) (string, error) {
	from := s.cached
	if src.Kind == Secret && s.secrets != nil {
		switch version, known := s.secrets.version(src); {
		case known && version != "":
			return version, nil
		case known:
			s.forget(src)
			return "", missing(src)
		}
		from = s.live // the Secret is not watched, not yet, or without permission
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: src.Kind})
	err := from.Get(ctx, client.ObjectKey{Namespace: src.Namespace, Name: src.Name}, m)
	if apierrors.IsNotFound(err) {
		s.forget(src)
		return "", missing(src)
	}
	if err != nil {
		return "", s.unread(src, err)
	}
	return versionOf(m), nil
}

func versionOf(o metav1.Object) string { return string(o.GetUID()) + "/" + o.GetResourceVersion() }

// unread converts the error of a failed read.
func (s *Reader) unread(src Ref, err error) error {
	if src.Kind != Secret || s.secrets == nil || !apierrors.IsForbidden(err) {
		return fmt.Errorf("read %s: %w", src, err)
	}
	s.forget(src)
	p := connection.NewProblem(v1beta1.ReasonDependencyNotReady,
		"%s cannot be read: the manager has no permission to read Secrets in namespace %q; there, bind the ClusterRole keyserver-manager-secrets "+
			"to the manager's service account with a RoleBinding (docs/install.md, \"Open a namespace to the manager\")", src, src.Namespace)
	p.RequeueAfter = retryForbidden
	return p
}

// retryForbidden is the pause before a retry to read a Secret without permission. The watch cannot replace the retry,
// because it reports nothing about a Secret that does not exist.
const retryForbidden = 30 * time.Second

// Public returns a public value, such as a certificate. It caches the value until the source changes.
func (s *Reader) Public(ctx context.Context, from Key) ([]byte, error) {
	src, key := from.Ref, from.Key
	version, err := s.Version(ctx, src)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	known := s.seen[src]
	s.mu.Unlock()
	if v, ok := known.values[key]; ok && known.version == version {
		return v, nil
	}
	value, version, err := s.read(ctx, src, key)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known = s.seen[src]; known.version != version {
		known = reading{version: version, values: map[string][]byte{}}
	}
	known.values[key] = value
	s.seen[src] = known
	return value, nil
}

// Secret returns a secret value, which it never caches.
func (s *Reader) Secret(ctx context.Context, src Ref, key string) ([]byte, error) {
	value, _, err := s.read(ctx, src, key)
	return value, err
}

func (s *Reader) read(ctx context.Context, src Ref, key string) (value []byte, version string, err error) {
	at := client.ObjectKey{Namespace: src.Namespace, Name: src.Name}
	var ok bool
	switch src.Kind {
	case Secret:
		o := &corev1.Secret{}
		err = s.live.Get(ctx, at, o)
		value, ok = o.Data[key]
		version = versionOf(o)
	default:
		o := &corev1.ConfigMap{}
		err = s.live.Get(ctx, at, o)
		if value, ok = o.BinaryData[key]; !ok {
			var text string
			text, ok = o.Data[key]
			value = []byte(text)
		}
		version = versionOf(o)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", missing(src)
	case err != nil:
		return nil, "", s.unread(src, err)
	case !ok:
		return nil, "", connection.NewProblem(v1beta1.ReasonDependencyNotReady, "%s has no key %q", src, key)
	}
	return value, version, nil
}

func (s *Reader) forget(src Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, src)
}

func missing(src Ref) *connection.Problem {
	return connection.NewProblem(v1beta1.ReasonDependencyNotReady, "%s does not exist", src)
}

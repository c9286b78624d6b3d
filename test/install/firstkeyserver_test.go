package install

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/firstkeyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// creation is the creation of the first KeyServer with the rights of the manager.
type creation struct {
	firstkeyserver.Creator
	t   *testing.T
	log *rig.Output
}

// newCreation applies the ConfigMap of an installation with other data.
func newCreation(t *testing.T, kustomization string, data map[string]string) *creation {
	t.Helper()
	objects := build(t, kustomization)
	apply(t, objects)
	source := pick(t, objects, "ConfigMap", "keyserver-first")
	for key, value := range data {
		rig.Must(t, unstructured.SetNestedField(source.Object, value, "data", key))
	}
	rig.Must(t, client.IgnoreNotFound(kube.Delete(t.Context(), source.DeepCopy()))) // with its mark
	apply(t, []*unstructured.Unstructured{source})
	t.Cleanup(func() {
		ctx := context.Background()
		rig.Must(t, errors.Join(kube.DeleteAllOf(ctx, &v1beta1.KeyServer{}), client.IgnoreNotFound(kube.Delete(ctx, source))))
	})
	config := rest.CopyConfig(restConfig)
	config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":keyserver-manager"
	manager, err := client.New(config, client.Options{Scheme: controlplane.Scheme()})
	rig.Must(t, err)
	log := &rig.Output{}
	return &creation{t: t, log: log, Creator: firstkeyserver.Creator{
		Client: manager, Reader: manager, ConfigMap: client.ObjectKeyFromObject(source), Logger: slog.New(slog.NewTextHandler(log, nil)),
	}}
}

// once runs the task of the manager, which repeats until the authorizer knows the rights.
func (c *creation) once() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), rig.Patience)
	defer cancel()
	if err := errors.Join(c.Start(ctx), ctx.Err()); err != nil {
		c.t.Fatalf("%v\n%s", err, c.log.String())
	}
}

// keyServers returns the KeyServers of the cluster and the mark of the ConfigMap.
func (c *creation) keyServers() (names []string, mark string) {
	c.t.Helper()
	list, source := &v1beta1.KeyServerList{}, &corev1.ConfigMap{}
	rig.Must(c.t, kube.List(c.t.Context(), list))
	rig.Must(c.t, kube.Get(c.t.Context(), c.ConfigMap, source))
	for _, ks := range list.Items {
		names = append(names, ks.Name)
	}
	return names, source.Annotations[firstkeyserver.Annotation]
}

func (c *creation) has(mark string, want ...string) {
	c.t.Helper()
	if names, got := c.keyServers(); strings.Join(names, " ") != strings.Join(want, " ") || got != mark {
		c.t.Errorf("the KeyServers are %q and the mark is %q, want %q and %q", names, got, want, mark)
	}
}

// The manager creates no KeyServer from an unusable manifest, and the error has the remedy.
func TestFirstKeyServerIsRefused(t *testing.T) {
	const notOne = "keyserver.yaml must have exactly one document, a KeyServer with metadata.name; correct it"
	const kind = "apiVersion: trust.keyserver.dev/v1beta1\nkind: KeyServer\n"
	for name, tc := range map[string]struct{ manifest, says string }{
		"nothing":        {"", notOne},
		"no YAML":        {"a: [", "keyserver.yaml: error converting YAML to JSON"},
		"another kind":   {"apiVersion: v1\nkind: Secret\nmetadata: {name: default}\n", notOne},
		"another group":  {"apiVersion: example.com/v1\nkind: KeyServer\nmetadata: {name: default}\n", notOne},
		"no name":        {kind, notOne},
		"two":            {kind + "metadata: {name: default}\n---\n" + kind + "metadata: {name: other}\n", notOne},
		"a wrong field":  {kind + "metadata: {name: default}\nspec: {url: 'https://a', urls: []}\n", "field not declared in schema"},
		"an invalid one": {kind + "metadata: {name: default}\nspec: {url: 'http://a'}\n", "spec.credentials: Required value"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCreation(t, defaults, map[string]string{firstkeyserver.ManifestKey: tc.manifest})
			rig.Succeeds(t, func() error { // the authorizer learns of new bindings with a delay
				err := c.Create(t.Context())
				if err != nil && strings.Contains(err.Error(), tc.says) {
					return nil
				}
				return err
			})
			if err := c.Create(t.Context()); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			c.has("")
		})
	}
	c := newCreation(t, defaults, nil)
	c.ConfigMap.Name = "keyserver-ca-of-another"
	if err := c.Create(t.Context()); err == nil || !strings.Contains(err.Error(), "apply the manifests of the installation again") {
		t.Errorf("without the ConfigMap: %v", err)
	}
}

// An existing KeyServer with any name prevents the creation, also after its deletion.
func TestFirstKeyServerIsOfTheUser(t *testing.T) {
	c := newCreation(t, defaults, nil)
	theirs := pick(t, build(t, defaultsKeyServer), "KeyServer", "default")
	theirs.SetName("theirs")
	rig.Must(t, kube.Create(t.Context(), theirs))
	c.once()
	c.has("theirs", "theirs")
	rig.Must(t, kube.Delete(t.Context(), theirs))
	c.once()
	c.has("theirs")
	if want := "the cluster has no KeyServer, and the manager creates none"; !strings.Contains(c.log.String(), want) {
		t.Errorf("the log does not contain %q:\n%s", want, c.log.String())
	}
}

// A KeyServer that is being deleted is not the user's: the manager waits, and then creates one.
func TestFirstKeyServerAfterADeletion(t *testing.T) {
	c := newCreation(t, defaults, nil)
	old := pick(t, build(t, defaultsKeyServer), "KeyServer", "default")
	old.SetFinalizers([]string{"example.com/held"})
	rig.Must(t, kube.Create(t.Context(), old))
	rig.Must(t, kube.Delete(t.Context(), old))
	rig.Soon(t, "the manager waits for the deletion", func() bool {
		err := c.Create(t.Context())
		return err != nil && strings.Contains(err.Error(), "KeyServer default is being deleted; wait")
	})
	rig.Must(t, kube.Patch(t.Context(), old, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	c.once()
	c.has("default", "default")
}

// The manager creates the KeyServer once. The tool that has installed it can then change and remove its fields without
// a conflict, and other users can add grants.
func TestFirstKeyServer(t *testing.T) {
	for name, tc := range map[string]struct {
		data    map[string]string
		manager client.FieldOwner
	}{
		"kubectl": {nil, "kubectl"},
		"helm":    {map[string]string{firstkeyserver.FieldManagerKey: "helm"}, "helm"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCreation(t, defaults, tc.data)
			c.once()
			c.has("default", "default")
			created := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			rig.Must(t, kube.Get(t.Context(), client.ObjectKeyFromObject(created), created))
			if created.Spec.URL != "https://localhost:8443" || len(created.Spec.Grants) != 1 {
				t.Errorf("created: %+v", created.Spec)
			}

			// The other form has a Secret instead of the ConfigMap: the schema refuses both together.
			other := pick(t, build(t, postgresKeyServer), "KeyServer", "default")
			rig.Must(t, kube.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(other.DeepCopy()), tc.manager))
			grant := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"grants": []any{
				map[string]any{"name": "payments", "namespaces": map[string]any{"names": []any{"payments"}}, "kinds": []any{"Role"}, "names": []any{"*"}, "operations": []any{"MAC Data"}},
			}}}}
			grant.SetGroupVersionKind(other.GroupVersionKind())
			grant.SetName("default")
			rig.Must(t, kube.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(grant), client.FieldOwner("payments")))
			rig.Must(t, kube.Get(t.Context(), client.ObjectKeyFromObject(created), created))
			if ca := created.Spec.CABundle; ca.ConfigMapKeyRef != nil || ca.SecretKeyRef == nil || len(created.Spec.Grants) != 2 {
				t.Errorf("applied: %+v", created.Spec)
			}

			rig.Must(t, kube.Delete(t.Context(), created))
			c.once()
			c.has("default")
		})
	}
}

package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const configDir = "../../config"

// Names of kustomizations in config, and of kustomizations that add a component.
const (
	namespaceAlone     = "namespace"
	volume             = "volume" // with the namespace
	defaults           = "default"
	defaultsKeyServer  = "keyserver"
	access             = "access"
	postgres           = "overlays/postgres"
	postgresHA         = "overlays/postgres-ha"
	migration          = "migrate"
	migrationBack      = "migrate/back"
	postgresKeyServer  = "overlays/postgres/keyserver"
	monitored          = "default and prometheus"
	postgresMonitored  = "overlays/postgres and prometheus"
	documented         = "the example of docs/install.md"
	monitoringAPIGroup = "monitoring.coreos.com"
	databaseAPIGroup   = "postgresql.cnpg.io"
)

// composed has kustomizations as a user would write them.
var composed = map[string]string{
	monitored:         "resources: [../../default]\ncomponents: [../../prometheus]\n",
	postgresMonitored: "resources: [../../overlays/postgres]\ncomponents: [../../prometheus]\n",
}

// kustomizations returns all kustomizations of config and of composed.
func kustomizations(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(configDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(text), "kind: Component") {
			name, relErr := filepath.Rel(configDir, filepath.Dir(path))
			names, err = append(names, name), relErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(names, monitored, postgresMonitored, documented)
}

// build returns the objects that "kubectl apply -k" would apply for a kustomization.
func build(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	dir := filepath.Join(configDir, name)
	files := filesys.MakeFsOnDisk()
	text, own := composed[name]
	if name == documented {
		text, own = example(t), true
	}
	if own {
		// In a copy, because a kustomization can only refer to files near it.
		root := t.TempDir()
		if err := os.CopyFS(root, os.DirFS(configDir)); err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, "own", "composed")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	options := krusty.MakeDefaultOptions()
	options.PluginConfig = kustomize.DisabledPluginConfig()
	built, err := krusty.MakeKustomizer(options).Run(files, dir)
	if err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		content, err := resource.Map()
		if err != nil {
			t.Fatal(err)
		}
		// Conversion to JSON gives numbers the types that Kubernetes uses.
		text, err := (&unstructured.Unstructured{Object: content}).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}

// example returns the kustomization in the documentation.
func example(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/install.md shows no kustomization")
	}
	return strings.ReplaceAll(text, "- config/", "- ../../")
}

// apply applies objects like "kubectl apply --server-side", in the order of kustomize. It skips kinds that are unknown
// in a plain cluster.
func apply(t *testing.T, objects []*unstructured.Unstructured, options ...client.ApplyOption) {
	t.Helper()
	for _, o := range objects {
		if o.GroupVersionKind().Group == monitoringAPIGroup {
			continue
		}
		rig.Succeeds(t, func() error { // a new kind is available after a moment
			err := kube.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), append(options, client.FieldOwner("test"), client.ForceOwnership)...)
			if err != nil && !apierrors.IsNotFound(err) && !strings.Contains(err.Error(), "no matches for kind") {
				t.Fatalf("apply %s: %v", describe(o), err)
			}
			return err
		})
		if o.GetKind() == "Deployment" {
			t.Cleanup(func() { // the next test could not apply its objects over these
				if err := kube.Delete(context.Background(), o.DeepCopy()); client.IgnoreNotFound(err) != nil {
					t.Error(err)
				}
			})
		}
	}
}

func describe(o *unstructured.Unstructured) string {
	return strings.TrimSuffix(fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName()), "/")
}

// pick returns the only object of a kind and name.
func pick(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// typed returns all objects of a kind as Go values. An unknown field fails the test.
func typed[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if o.GetKind() != kind {
			continue
		}
		var v T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &v, true); err != nil {
			t.Fatalf("%s: %v", describe(o), err)
		}
		found = append(found, v)
	}
	return found
}

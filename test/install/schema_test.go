package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// The schemas of this kube-apiserver and its CRDs contain every field of the manifests. The server would silently drop
// a misspelt field.
func TestManifestsConform(t *testing.T) {
	apply(t, build(t, "crd"))
	conform := newConformer(t)
	for _, name := range kustomizations(t) {
		t.Run(name, func(t *testing.T) {
			objects := build(t, name)
			if len(objects) == 0 {
				t.Fatal("builds nothing")
			}
			for _, o := range objects {
				if group := o.GroupVersionKind().Group; group == monitoringAPIGroup || group == databaseAPIGroup {
					continue // checked below and in TestTheDatabaseThatFailsOver
				}
				if err := conform(o); err != nil {
					t.Errorf("%s: %v", describe(o), err)
				}
			}
			// The kinds of the Prometheus operator are unknown to this server.
			typed[monitoringv1.ServiceMonitor](t, objects, "ServiceMonitor")
			typed[monitoringv1.PrometheusRule](t, objects, "PrometheusRule")
		})
	}
}

// The validation finds unknown fields at every depth.
func TestConformanceRefuses(t *testing.T) {
	apply(t, build(t, "crd"))
	conform := newConformer(t)
	deployment := pick(t, build(t, defaults), "Deployment", "keyserver")
	keyServer := pick(t, build(t, defaultsKeyServer), "KeyServer", "default")
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		value  any
		path   []string
	}{
		"a misspelt field of a Pod":        {deployment, true, []string{"spec", "template", "spec", "automountServiceAccountTokens"}},
		"a wrong type":                     {deployment, "one", []string{"spec", "replicas"}},
		"a misspelt field of a KeyServer":  {keyServer, "x", []string{"spec", "credentials", "admin"}},
		"a misspelt field of the metadata": {keyServer, map[string]any{"a": "b"}, []string{"metadata", "label"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.object.DeepCopy()
			if err := conform(o); err != nil {
				t.Fatalf("before the change: %v", err)
			}
			if err := unstructured.SetNestedField(o.Object, c.value, c.path...); err != nil {
				t.Fatal(err)
			}
			if err := conform(o); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// newConformer returns a validator with the schemas of the running kube-apiserver.
func newConformer(t *testing.T) func(*unstructured.Unstructured) error {
	t.Helper()
	dir := t.TempDir()
	writeSchemas(t, dir)
	v, err := validator.New([]string{filepath.Join(dir, "{{ .Group }}_{{ .ResourceAPIVersion }}_{{ .ResourceKind }}.json")}, validator.Opts{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *unstructured.Unstructured) error {
		text, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		for _, result := range v.Validate(describe(o), io.NopCloser(bytes.NewReader(text))) {
			if result.Status != validator.Valid {
				return fmt.Errorf("status %d: %w", result.Status, result.Err)
			}
		}
		return nil
	}
}

// writeSchemas converts the server's OpenAPI documents into a JSON schema for each kind.
func writeSchemas(t *testing.T, dir string) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		t.Fatal(err)
	}
	var paths map[string]openapi.GroupVersion
	rig.Succeeds(t, func() (err error) { // the schemas of new kinds follow a moment later
		if paths, err = client.OpenAPIV3().Paths(); err != nil {
			return err
		}
		if ours := "apis/" + v1beta1.GroupVersion.String(); paths[ours] == nil {
			return fmt.Errorf("no schemas of %s", ours)
		}
		return nil
	})
	for path, group := range paths {
		if strings.HasPrefix(path, "api/") || strings.HasPrefix(path, "apis/") {
			writeGroup(t, dir, group)
		}
	}
}

func writeGroup(t *testing.T, dir string, group openapi.GroupVersion) {
	t.Helper()
	text, err := group.Schema("application/json")
	if err != nil {
		t.Fatal(err)
	}
	// kubeconform expects definitions at this path.
	text = bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("#/definitions/"))
	var document struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	for _, schema := range document.Components.Schemas {
		closeObjects(schema)
	}
	for name, schema := range document.Components.Schemas {
		kinds, ok := schema["x-kubernetes-group-version-kind"].([]any)
		if !ok || len(kinds) != 1 { // kinds such as options belong to all groups
			continue
		}
		kind := kinds[0].(map[string]any)
		whole, err := json.Marshal(map[string]any{"$ref": "#/definitions/" + name, "definitions": document.Components.Schemas})
		if err != nil {
			t.Fatal(err)
		}
		group := kind["group"]
		if group == "" {
			group = kind["version"] // kubeconform uses the version as the group of a core kind
		}
		file := fmt.Sprintf("%s_%s_%s.json", group, kind["version"], strings.ToLower(kind["kind"].(string)))
		if err := os.WriteFile(filepath.Join(dir, file), whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// closeObjects makes each schema reject unknown members, unless the schema allows them explicitly.
func closeObjects(node any) {
	switch n := node.(type) {
	case map[string]any:
		_, properties := n["properties"].(map[string]any)
		_, more := n["additionalProperties"]
		if properties && !more && n["x-kubernetes-preserve-unknown-fields"] != true && n["x-kubernetes-embedded-resource"] != true {
			n["additionalProperties"] = false
		}
		for _, child := range n {
			closeObjects(child)
		}
	case []any:
		for _, child := range n {
			closeObjects(child)
		}
	}
}

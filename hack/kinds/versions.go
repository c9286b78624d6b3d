package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// addDeprecated adds the deprecated version to each definition that controller-gen has written to a directory. The
// version has the same schema, so the API server converts by changing the apiVersion.
func addDeprecated(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			text, err = withDeprecated(text)
		}
		if err == nil {
			err = os.WriteFile(file, text, 0o644) //nolint:gosec // readable for all, as in git
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func withDeprecated(definition []byte) ([]byte, error) {
	var crd struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       map[string]any `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		return nil, err
	}
	versions, _ := crd.Spec["versions"].([]any)
	if len(versions) != 1 {
		return nil, fmt.Errorf("spec.versions: has %d versions, want 1; run make manifests", len(versions))
	}
	present, _ := versions[0].(map[string]any)
	names, _ := crd.Spec["names"].(map[string]any)
	deprecated := maps.Clone(present)
	deprecated["name"], deprecated["storage"], deprecated["deprecated"] = v1beta1.Deprecated.Version, false, true
	deprecated["deprecationWarning"] = fmt.Sprintf("%s %s is deprecated; use %s", v1beta1.Deprecated, names["kind"], v1beta1.GroupVersion)
	crd.Spec["versions"] = []any{present, deprecated}
	text, err := yaml.Marshal(crd)
	return append([]byte("---\n"), text...), err
}

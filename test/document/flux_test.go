package document

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The paths that docs/install.md gives to Flux exist, in an order that respects their dependencies. Only the directory
// of declarations is in the reader's repository.
func TestFluxAppliesWhatIsThere(t *testing.T) {
	_, rest, found := strings.Cut(textOf(t, "docs/install.md"), "### Flux\n")
	_, rest, begun := strings.Cut(rest, "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !begun || !closed {
		t.Fatal("docs/install.md shows nothing for Flux")
	}
	var before []string
	for document := range strings.SplitSeq(text, "---\n") {
		var k struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"metadata"`
			Spec struct {
				SourceRef      map[string]string   `json:"sourceRef"`
				Path           string              `json:"path"`
				DependsOn      []map[string]string `json:"dependsOn"`
				Interval       string              `json:"interval"`
				Prune          bool                `json:"prune"`
				DeletionPolicy string              `json:"deletionPolicy"`
				Wait           bool                `json:"wait"`
				Timeout        string              `json:"timeout"`
			} `json:"spec"`
		}
		if err := yaml.UnmarshalStrict([]byte(document), &k); err != nil {
			t.Fatal(err)
		}
		if k.APIVersion != "kustomize.toolkit.fluxcd.io/v1" || k.Kind != "Kustomization" || k.Metadata.Namespace != "flux-system" {
			t.Errorf("%s is a %s %s in %s", k.Metadata.Name, k.APIVersion, k.Kind, k.Metadata.Namespace)
		}
		if len(before) > 0 && len(k.Spec.DependsOn) == 0 {
			t.Errorf("%s waits for nothing", k.Metadata.Name)
		}
		for _, other := range k.Spec.DependsOn {
			if !slices.Contains(before, other["name"]) {
				t.Errorf("%s waits for %q, which is not before it", k.Metadata.Name, other["name"])
			}
		}
		if k.Spec.Path != "./trust" {
			if _, err := os.Stat(filepath.Join("../..", k.Spec.Path, "kustomization.yaml")); err != nil {
				t.Errorf("%s: %v", k.Metadata.Name, err)
			}
		}
		before = append(before, k.Metadata.Name)
	}
	if len(before) != 4 {
		t.Errorf("they are %q", before)
	}
}

package document

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// resource is an entry of PROJECT.
type resource struct {
	API struct {
		CRDVersion string `json:"crdVersion"`
		Namespaced bool   `json:"namespaced"`
	} `json:"api"`
	Controller bool   `json:"controller"`
	Domain     string `json:"domain"`
	Group      string `json:"group"`
	Kind       string `json:"kind"`
	Path       string `json:"path"`
	Version    string `json:"version"`
}

// PROJECT lists every kind that the manifests define, with the same values.
func TestProjectListsEveryKind(t *testing.T) {
	var project struct {
		Domain     string     `json:"domain"`
		Layout     []string   `json:"layout"`
		Name       string     `json:"projectName"`
		Repository string     `json:"repo"`
		Resources  []resource `json:"resources"`
		Version    string     `json:"version"`
	}
	if err := yaml.UnmarshalStrict([]byte(textOf(t, "PROJECT")), &project); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(textOf(t, "go.mod"), "module "+project.Repository+"\n") {
		t.Errorf("%s is not the module of go.mod", project.Repository)
	}

	files, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	var defined []resource
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			if v.Deprecated { // has no Go package
				continue
			}
			r := resource{
				Controller: true, Domain: project.Domain, Group: strings.TrimSuffix(crd.Spec.Group, "."+project.Domain),
				Kind: crd.Spec.Names.Kind, Path: project.Repository + "/api/" + v.Name, Version: v.Name,
			}
			r.API.CRDVersion, r.API.Namespaced = "v1", crd.Spec.Scope == apiextensionsv1.NamespaceScoped
			defined = append(defined, r)
		}
	}
	byKind := func(a, b resource) int { return strings.Compare(a.Kind+a.Version, b.Kind+b.Version) }
	slices.SortFunc(defined, byKind)
	slices.SortFunc(project.Resources, byKind)
	if diff := cmp.Diff(defined, project.Resources); diff != "" {
		t.Errorf("PROJECT differs from config/crd/bases (-want +got):\n%s", diff)
	}
	for _, r := range project.Resources {
		if _, err := os.Stat(filepath.Join(root, "controllers", strings.ToLower(r.Kind)+".go")); err != nil {
			t.Errorf("%s is said to have a controller: %v", r.Kind, err)
		}
	}
}

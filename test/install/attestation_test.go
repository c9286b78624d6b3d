package install

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	materialsType  = "https://spdx.dev/Document"
	provenanceType = "https://slsa.dev/provenance/v1"
)

type (
	// statement is an in-toto statement.
	statement struct {
		Type          string          `json:"_type"`
		Subject       []resource      `json:"subject"`
		PredicateType string          `json:"predicateType"`
		Predicate     json.RawMessage `json:"predicate"`
	}
	resource struct {
		Name        string            `json:"name"`
		URI         string            `json:"uri"`
		Digest      map[string]string `json:"digest"`
		Annotations map[string]any    `json:"annotations"`
	}
	materials struct {
		Version  string `json:"spdxVersion"`
		Packages []struct {
			Name    string `json:"name"`
			Version string `json:"versionInfo"`
		} `json:"packages"`
	}
	provenance struct {
		BuildDefinition struct {
			BuildType            string            `json:"buildType"`
			ExternalParameters   map[string]string `json:"externalParameters"`
			InternalParameters   map[string]string `json:"internalParameters"`
			ResolvedDependencies []resource        `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder  struct{ ID string } `json:"builder"`
			Metadata map[string]any      `json:"metadata"`
		} `json:"runDetails"`
	}
)

// saidOf returns the statements of a layout about each of its images, by platform and predicate type. It fails the test
// if a statement names another image.
func saidOf(t *testing.T, dir string) map[string]map[string]statement {
	t.Helper()
	said := map[string]map[string]statement{}
	images := map[string]string{} // platform by image
	for _, d := range entriesOf(t, dir) {
		if d.runs() {
			images[d.Digest] = d.Platform.OS + "/" + d.Platform.Architecture
			continue
		}
		about := d.Annotations["vnd.docker.reference.digest"]
		platform, there := images[about]
		if !there || said[platform] != nil || d.Annotations["vnd.docker.reference.type"] != "attestation-manifest" {
			t.Fatalf("the entry %+v is about none of %v, or another one is", d, images)
		}
		said[platform] = map[string]statement{}
		var m manifest
		decode(t, blob(t, dir, d.Digest), &m)
		for _, layer := range m.Layers {
			var s statement
			decode(t, blob(t, dir, layer.Digest), &s)
			if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != layer.Annotations["in-toto.io/predicate-type"] {
				t.Errorf("%s: a %s about %s, announced as %v", platform, s.Type, s.PredicateType, layer.Annotations)
			}
			if len(s.Subject) != 1 || "sha256:"+s.Subject[0].Digest["sha256"] != about {
				t.Errorf("%s: %s is said of %+v, and not of %s", platform, s.PredicateType, s.Subject, about)
			}
			said[platform][s.PredicateType] = s
		}
	}
	for _, platform := range images {
		if got := slices.Sorted(maps.Keys(said[platform])); !slices.Equal(got, []string{provenanceType, materialsType}) {
			t.Fatalf("%s: it is said %q", platform, got)
		}
	}
	return said
}

// The statement of an image names the same materials as the compiler has recorded in its program: each module with its
// sum in go.sum, the Go version, and the settings.
func TestImageSaysWhatItIsMadeOf(t *testing.T) {
	built := imageBuilt(t)
	about, err := buildinfo.ReadFile(built.program())
	if err != nil {
		t.Fatal(err)
	}
	platform := "linux/" + runtime.GOARCH
	said := saidOf(t, built.layout())[platform]
	var m materials
	decode(t, said[materialsType].Predicate, &m)
	var p provenance
	decode(t, said[provenanceType].Predicate, &p)

	if len(about.Deps) < 50 || m.Version != "SPDX-2.3" {
		t.Fatalf("%d modules, %s", len(about.Deps), m.Version)
	}
	listed, summed := map[string]string{}, map[string]string{}
	for _, one := range m.Packages {
		listed[one.Name] = one.Version
	}
	for _, one := range p.BuildDefinition.ResolvedDependencies {
		summed[one.Name] = one.Digest["dirHash"]
	}
	modules := slices.DeleteFunc(about.Deps, func(m *debug.Module) bool { return m.Replace != nil && strings.HasPrefix(m.Replace.Path, "./") }) // clients/go is in the source
	for _, module := range modules {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
		if err != nil {
			t.Fatal(err)
		}
		if listed[module.Path] != module.Version || summed[module.Path] != hex.EncodeToString(sum) {
			t.Errorf("%s %s %s: the SBOM has %q, the provenance %q", module.Path, module.Version, module.Sum, listed[module.Path], summed[module.Path])
		}
	}
	// The other three dependencies are the source, the base image and Go.
	if got, want := len(p.BuildDefinition.ResolvedDependencies), len(modules)+3; got != want {
		t.Errorf("it depends on %d, want %d", got, want)
	}
	if diff := cmp.Diff(map[string]string{"package": about.Path, "platform": platform}, p.BuildDefinition.ExternalParameters); diff != "" {
		t.Errorf("external parameters (-want +got):\n%s", diff)
	}
	settings := map[string]string{"go": about.GoVersion}
	for _, s := range about.Settings {
		settings[s.Key] = s.Value
	}
	if diff := cmp.Diff(settings, p.BuildDefinition.InternalParameters); diff != "" || settings["CGO_ENABLED"] != "0" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if p.RunDetails.Metadata != nil || p.RunDetails.Builder.ID == "" || p.BuildDefinition.BuildType == "" {
		t.Errorf("%+v, %s", p.RunDetails, p.BuildDefinition.BuildType)
	}
}

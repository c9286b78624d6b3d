package document

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
)

var tag = "v" + version.String()

// The manifests run the release that they are part of.
func TestManifestsRunThisVersion(t *testing.T) {
	image := regexp.MustCompile(`(?m)^ *(?:- )?image: (.*)$`)
	for _, installation := range []string{"config/default", "config/overlays/postgres"} {
		options := krusty.MakeDefaultOptions()
		options.PluginConfig = kustomize.DisabledPluginConfig()
		built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), filepath.Join(root, installation))
		if err != nil {
			t.Fatal(err)
		}
		manifests, err := built.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		images := image.FindAllStringSubmatch(string(manifests), -1)
		if len(images) != 2 {
			t.Errorf("%s: %d containers name an image, want the manager and the key server", installation, len(images))
		}
		for _, i := range images {
			if want := "keyserver-operator:" + tag; i[1] != want {
				t.Errorf("%s runs %s, want %s: the tag is in config/image", installation, i[1], want)
			}
		}
	}
}

// Our modules require each other at this release. Builds in the checkout use the directories.
func TestModulesHaveThisVersion(t *testing.T) {
	const main = "github.com/keyserver-operator/keyserver-operator"
	for file, modules := range map[string][]string{
		"go.mod":                       {main + "/clients/go"},
		"httpapi/keyservertest/go.mod": {main, main + "/clients/go"},
	} {
		for _, module := range modules {
			if want := "\t" + module + " " + tag + "\n"; !strings.Contains(textOf(t, file), want) {
				t.Errorf("%s does not require%s", file, want)
			}
		}
	}
}

// The Helm chart has the version of this release.
func TestChartIsThisVersion(t *testing.T) {
	var chart struct{ Version, AppVersion string }
	if err := yaml.Unmarshal([]byte(textOf(t, "config/chart/Chart.yaml")), &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Version != version.String() || chart.AppVersion != version.String() {
		t.Errorf("config/chart/Chart.yaml has %+v, want %s twice", chart, version.String())
	}
}

// The installation page shows this release, too.
func TestInstallationShowsThisVersion(t *testing.T) {
	shown := regexp.MustCompile(`(?:keyserver-operator:|newTag: )(v[\d.]*\d)`).FindAllStringSubmatch(textOf(t, "docs/install.md"), -1)
	if len(shown) == 0 {
		t.Error("docs/install.md names no tag")
	}
	for _, s := range shown {
		if s[1] != tag {
			t.Errorf("docs/install.md shows %s, want %s", s[1], tag)
		}
	}
}

// The newest release of the change log is this one.
func TestChangelogHasThisVersion(t *testing.T) {
	releases := regexp.MustCompile(`(?m)^## \[(\d\S*)\] - \d{4}-\d{2}-\d{2}$`).FindAllStringSubmatch(textOf(t, "CHANGELOG.md"), -1)
	if len(releases) == 0 || releases[0][1] != version.String() {
		t.Fatalf("the newest of %q is not %s", releases, version.String())
	}
	if out, err := exec.Command(filepath.Join(root, "hack", "changelog.sh"), version.String()).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A release is published with its section of the change log, and never without text.
func TestSectionsOfTheChangelog(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hack/changelog.sh": textOf(t, "hack/changelog.sh"),
		"hack/lib.sh":       textOf(t, "hack/lib.sh"),
		"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [0.2.1] - 2027-01-02\n\n### Fixed\n\n- That.\n\n" +
			"## [0.2.0] - 2027-01-01\n\n## [0.1.0] - 2026-11-22\n\nThe first.\n\n[Unreleased]: https://example.org\n[0.1.0]: https://example.org\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	for release, want := range map[string]string{
		"0.2.1": "### Fixed\n\n- That.", "0.1.0": "The first.",
		"0.2.0": "", "0.2": "", "0.3.0": "", "Unreleased": "",
	} {
		section, err := exec.Command(filepath.Join(dir, "hack", "changelog.sh"), release).Output()
		if got := strings.TrimSpace(string(section)); got != want || (err == nil) != (want != "") {
			t.Errorf("the section of %s is %q (%v), want %q", release, got, err, want)
		}
	}
}

func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// plugin is a manifest as krew (pkg/index) reads it. krew ignores unknown fields; the strict reader
// here rejects them. test/krew uses the reader of krew itself.
type plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Caveats          string `json:"caveats"`
		Platforms        []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

// platforms are those of the release archives of keyserverctl.
var platforms = []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64"}

// readPlugin checks that a manifest meets the rules of krew.
func readPlugin(t *testing.T, text []byte) plugin {
	t.Helper()
	var p plugin
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatal(err)
	}
	s := p.Spec
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" || p.Metadata.Name != "keyserver" {
		t.Errorf("it is %s %s %s", p.APIVersion, p.Kind, p.Metadata.Name)
	}
	if len(s.ShortDescription) == 0 || len(s.ShortDescription) > 50 || strings.ContainsAny(s.ShortDescription, "\r\n") {
		t.Errorf("shortDescription is %q; krew's index wants one line of 50 characters at most", s.ShortDescription)
	}
	seen := map[string]bool{}
	for _, one := range s.Platforms {
		l := one.Selector.MatchLabels
		name := l["os"] + "-" + l["arch"]
		want := "https://github.com/keyserver-operator/keyserver-operator/releases/download/" + s.Version + "/kubectl-keyserver-" + name + ".tar.gz"
		bin := "kubectl-keyserver"
		if l["os"] == "windows" {
			bin += ".exe"
		}
		if len(l) != 2 || seen[name] || one.URI != want || one.Bin != bin || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(one.SHA256) {
			t.Errorf("platform %+v", one)
		}
		seen[name] = true
	}
	for _, name := range platforms {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
	if len(seen) != len(platforms) {
		t.Errorf("platforms are %v", seen)
	}
	return p
}

func TestKrewManifest(t *testing.T) {
	text, err := os.ReadFile("krew/keyserver.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if p := readPlugin(t, text); p.Spec.Version != "v"+version.String() {
		t.Errorf("it is of %s, and the program is %s", p.Spec.Version, version.String())
	}
}

// A release fills in the manifest: each digest is that of an archive whose plugin is the released binary.
func TestKrewRelease(t *testing.T) {
	dir := t.TempDir()
	for _, name := range platforms {
		suffix := ""
		if name == "windows-amd64" {
			suffix = ".exe"
		}
		if err := os.WriteFile(filepath.Join(dir, "keyserverctl-"+name+suffix), []byte("for "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "../hack/krew.sh", args...).Output()
		return string(out), err
	}
	for _, bad := range [][]string{{"0.2.0"}, {"v0.2.0", dir}, {"0.2.0", t.TempDir()}} {
		if out, err := run(bad...); err == nil || out != "" {
			t.Errorf("%v: %q, %v", bad, out, err)
		}
	}
	out, err := run("0.2.0", dir)
	if err != nil {
		t.Fatal(err)
	}
	p := readPlugin(t, []byte(out))
	if p.Spec.Version != "v0.2.0" {
		t.Errorf("it is of %s", p.Spec.Version)
	}
	for _, one := range p.Spec.Platforms {
		archive, err := os.ReadFile(filepath.Join(dir, filepath.Base(one.URI)))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != one.SHA256 {
			t.Errorf("%s: digest %s", one.URI, one.SHA256)
		}
		// Every user can execute it.
		l := one.Selector.MatchLabels
		if got := rig.Unpacked(t, archive)[one.Bin]; got.Text != "for "+l["os"]+"-"+l["arch"] || got.Mode&0o111 != 0o111 {
			t.Errorf("%s: the plugin is %+v", one.URI, got)
		}
	}
	if again, err := run("0.2.0", dir); err != nil || again != out {
		t.Errorf("the same binaries make another release: %v\n%s", err, again)
	}
}

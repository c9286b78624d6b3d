package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// releaseImage has the tag of the chart.
const releaseImage = "registry.example/keyserver-operator:v0.1.0"

// releaseFiles writes install.yaml and the chart's archive as "make dist-install" does, and returns their directory.
func releaseFiles(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./hack/chart", "-image", releaseImage, "-out", directory)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return directory
}

// The files of a release install everything with one command. Deleting install.yaml, also twice, keeps the namespace and
// the volume, which have the keys.
func TestInstallFiles(t *testing.T) {
	files := releaseFiles(t)
	text, err := os.ReadFile(filepath.Join(files, "install.yaml"))
	rig.Must(t, err)
	if got := strings.Count(string(text), "image: "+releaseImage+"\n"); got != 2 || strings.Contains(string(text), "image: keyserver-operator") {
		t.Errorf("%d containers have the image of the release", got)
	}
	install, wait, _ := strings.Cut(blocksUnder(t, "## Install a release", "sh")[0], "\n")
	if install != "kubectl apply --server-side -f volume.yaml -f install.yaml" || strings.Count(wait, "kubectl wait ") != 2 { // for Pods
		t.Fatalf("docs/install.md installs by other commands: %s", install)
	}

	r := newRelease(t)
	keys, program := build(t, volume), build(t, defaults)
	for range 2 {
		r.kubectl("apply", "--server-side", "-f", filepath.Join(files, "volume.yaml"), "-f", filepath.Join(files, "install.yaml"))
		r.has(true, append(keys, program...))
	}
	for range 2 {
		r.kubectl("delete", "-f", filepath.Join(files, "install.yaml"), "--ignore-not-found")
		r.has(true, keys)
		r.has(false, program)
	}
}

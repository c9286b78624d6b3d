package install

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig/node"
)

// place is the environment of a build.
type place struct {
	umask, home, zone, temporary string
	flags                        string // flags of Go
}

// build builds an image with the hack/image of a checkout.
func (p place) build(t *testing.T, checkout string, arguments ...string) error {
	t.Helper()
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOENV").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := strings.Split(strings.TrimRight(string(caches), "\n"), "\n")
	if len(found) != 3 {
		t.Fatalf("go env: %q", found)
	}
	cmd := exec.Command("sh", append([]string{"-c", `umask "$0" && exec go run -C hack/image . "$@"`, p.umask}, arguments...)...)
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+p.flags, "HOME="+p.home, "TZ="+p.zone, "TMPDIR="+p.temporary,
		// The build cache stays the same.
		"GOCACHE="+found[0], "GOMODCACHE="+found[1], "GOENV="+found[2])
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// places returns two environments that have only Go and its flags in common.
func places(t *testing.T, flags string) [2]place {
	return [2]place{
		{umask: "022", home: t.TempDir(), zone: "UTC", temporary: t.TempDir(), flags: flags},
		{umask: "077", home: t.TempDir(), zone: "Pacific/Kiritimati", temporary: t.TempDir(), flags: flags},
	}
}

// different returns the files that differ between archives, by name and content.
func different(t *testing.T, archives ...string) []string {
	t.Helper()
	count := map[string]int{}
	whole := make([][]byte, 0, len(archives))
	for _, path := range archives {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, content)
		layout := strings.TrimSuffix(path, ".tar")
		err = filepath.WalkDir(layout, func(at string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(layout, at)
			count[name]++
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	for name, times := range count {
		if times != len(archives) {
			found = append(found, name)
		}
	}
	for _, one := range whole[1:] {
		if !bytes.Equal(whole[0], one) {
			found = append(found, "the archive")
		}
	}
	slices.Sort(found)
	return found
}

// Building the image of the program with its console again gives identical bytes, from a copy of the checkout in
// another directory, with the settings of another user.
func TestImageRepeats(t *testing.T) {
	built := imageBuilt(t)
	checkout := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	copyContext(t, root, checkout)
	copyPath(t, root, checkout, "hack/image")
	copyPath(t, root, checkout, ".ko.yaml")
	node.Run(t, checkout, nil, filepath.Join(checkout, "hack/console.sh"))
	again := places(t, "-trimpath -buildvcs=false")[1]
	if err := again.build(t, checkout, "-out", "image", "-name", imageName); err != nil {
		t.Fatal(err)
	}
	if found := different(t, built.archive(), filepath.Join(checkout, "image.tar")); len(found) != 0 {
		t.Errorf("two builds differ in %q", found)
	}
}

// small returns a repository with a small program that is built as ours, for both platforms and in seconds. linked has
// additional linker flags.
func small(t *testing.T, linked string) string {
	t.Helper()
	config, err := os.ReadFile("../../.ko.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(config), "- -s -w", "- -s -w "+linked, 1)
	if linked != "" && changed == string(config) {
		t.Fatal("the settings of .ko.yaml are not those that this test changes")
	}
	repository := t.TempDir()
	const small = "package main\n\nvar built string\n\nfunc main() { println(built) }\n"
	for name, text := range map[string]string{
		"go.mod": "module example.com/small\n\ngo 1.26.0\n", "main.go": small, "cmd/keyserver-agent/main.go": small, "cmd/keyserverctl/main.go": small, ".ko.yaml": changed,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(repository, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(repository, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git(t, repository, "init", "--quiet")
	git(t, repository, "add", ".")
	git(t, repository, "-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "--quiet", "--message", "one")
	return repository
}

func git(t *testing.T, dir string, arguments ...string) string {
	t.Helper()
	cmd := exec.Command("git", arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", arguments, err, out)
	}
	return strings.TrimSpace(string(out))
}

// twice builds two clones of a repository for both platforms, and returns the layouts.
func twice(t *testing.T, repository string) []string {
	t.Helper()
	if err := program.DependOnSources(); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var layouts []string
	for _, p := range places(t, "-trimpath") {
		clone := filepath.Join(t.TempDir(), "clone")
		git(t, repository, "clone", "--quiet", repository, clone)
		layout := filepath.Join(t.TempDir(), "image")
		if err := p.build(t, root, "-source", clone, "-out", layout, "-name", imageName, "-platform", "linux/amd64,linux/arm64"); err != nil {
			t.Fatal(err)
		}
		layouts = append(layouts, layout)
	}
	return layouts
}

// Two clones build the same image for both platforms. The attestations of each platform name the commit and the
// materials.
func TestClonesGiveTheSameImage(t *testing.T) {
	repository := small(t, "")
	layouts := twice(t, repository)
	if found := different(t, layouts[0]+".tar", layouts[1]+".tar"); len(found) != 0 {
		t.Errorf("two builds differ in %q", found)
	}
	said := saidOf(t, layouts[0])
	commit := git(t, repository, "rev-parse", "HEAD")
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		var p provenance
		decode(t, said[platform][provenanceType].Predicate, &p)
		source := p.BuildDefinition.ResolvedDependencies[0]
		if source.Digest["gitCommit"] != commit || source.URI != "git+https://example.com/small" {
			t.Errorf("%s: its source is %+v, and the commit %s", platform, source, commit)
		}
		if p.BuildDefinition.ExternalParameters["platform"] != platform || p.BuildDefinition.InternalParameters["GOARCH"] != strings.TrimPrefix(platform, "linux/") {
			t.Errorf("%s: %+v", platform, p.BuildDefinition)
		}
	}
	if len(said) != 2 {
		t.Errorf("there are %d platforms", len(said))
	}
	// The result does not depend on the other targets of the build.
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(t.TempDir(), "image")
	if err := places(t, "-trimpath")[0].build(t, checkout, "-source", repository, "-out", alone, "-platform", "linux/arm64"); err != nil {
		t.Fatal(err)
	}
	if one, both := entriesOf(t, alone), entriesOf(t, layouts[0]); len(one) != 2 || len(both) != 4 || one[0].Digest != both[1].Digest || one[1].Digest != both[3].Digest {
		t.Errorf("alone it is %+v, with another platform %+v", one, both)
	}
}

// A program that records the directory of its build has different images. This shows that TestClonesGiveTheSameImage
// can fail.
func TestAnImageThatDoesNotRepeatIsNoticed(t *testing.T) {
	layouts := twice(t, small(t, "-X main.built={{.Env.HOME}}"))
	if found := different(t, layouts[0]+".tar", layouts[1]+".tar"); !slices.Contains(found, "the archive") || len(found) < 3 {
		t.Errorf("two builds differ in %q, though each has its home in it", found)
	}
}

// The attestation of a checkout with changes does not name a commit.
func TestAChangedCheckoutIsNoCommit(t *testing.T) {
	checkout := small(t, "")
	if err := os.WriteFile(filepath.Join(checkout, "more.go"), []byte("package main\n\nfunc init() { built = `x` }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	layout := filepath.Join(t.TempDir(), "image")
	if err := places(t, "-trimpath")[0].build(t, root, "-source", checkout, "-out", layout); err != nil {
		t.Fatal(err)
	}
	for platform, said := range saidOf(t, layout) {
		var p provenance
		decode(t, said[provenanceType].Predicate, &p)
		source := p.BuildDefinition.ResolvedDependencies[0]
		if len(source.Digest) != 0 || source.Annotations["modified"] != true || source.Annotations["commit"] != git(t, checkout, "rev-parse", "HEAD") {
			t.Errorf("%s: its source is %+v", platform, source)
		}
	}
}

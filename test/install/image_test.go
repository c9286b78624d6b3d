package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/cosign"
)

// imageUser is the user of every image, and of the manifests.
const imageUser = "65532:65532"

// TestImagesByKo checks that "make image-ko" needs neither Docker nor a registry. The images contain only their
// programs, root certificates and two writable directories.
func TestImagesByKo(t *testing.T) {
	built := imageBuilt(t)
	for _, image := range []struct {
		layout   string
		programs []string // the first is the entry point
	}{
		{built.layout(), []string{"keyserver-operator", "keyserver-agent", "keyserverctl"}},
		{built.layout() + "-agent", []string{"keyserver-agent"}},
	} {
		checkImage(t, image.layout, image.programs...)
	}
}

// checkImage checks the image of a layout. The first program is its entry point.
func checkImage(t *testing.T, layout string, programs ...string) {
	t.Helper()
	config, files := readImage(t, layout)
	if config.Config.User != imageUser || !slices.Equal(config.Config.Entrypoint, []string{"/ko-app/" + programs[0]}) {
		t.Errorf("%s runs as %q: %q", programs[0], config.Config.User, config.Config.Entrypoint)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("for %s/%s", config.OS, config.Architecture)
	}
	// This variable, which ko adds, has the directory of the image's data.
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin:/ko-app", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "KEYSERVER_DATA_DIR=/data", "KO_DATA_PATH=/var/run/ko"}
	if !slices.Equal(config.Config.Env, env) {
		t.Errorf("its environment is %q, want %q", config.Config.Env, env)
	}
	want := map[string]fs.FileMode{ // by path
		"data": fs.ModeDir | 0o700, "tmp": fs.ModeDir | fs.ModeSticky | 0o777, "etc/ssl/certs/ca-certificates.crt": 0o644,
	}
	for _, name := range programs {
		want["ko-app/"+name] = 0o555
	}
	for path, mode := range want {
		if f, there := files[path]; !there {
			t.Errorf("there is no %s", path)
		} else if got := f.FileInfo().Mode(); got != mode {
			t.Errorf("%s is %s, want %s", path, got, mode)
		}
	}
	for path, f := range files {
		if _, known := want[path]; !known && f.Typeflag != tar.TypeDir && !strings.HasPrefix(path, "var/run/ko") {
			t.Errorf("there is also %s", path)
		}
	}
	if t.Failed() {
		t.FailNow() // the checks below read the files
	}
	if d := files["data"]; d.Uid != 65532 || d.Gid != 65532 {
		t.Errorf("the data directory belongs to %d:%d", d.Uid, d.Gid)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"].content) {
		t.Error("no root certificates")
	}
	for _, name := range programs {
		checkBinary(t, name, files["ko-app/"+name].content)
	}
}

// A node that imports the archive stores the image under the name in the manifests.
func TestImageHasItsName(t *testing.T) {
	built := imageBuilt(t)
	text, err := os.ReadFile(filepath.Join(built.layout(), "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"io.containerd.image.name": imageName, "org.opencontainers.image.ref.name": "v0.1.0"}
	if len(index.Manifests) != 1 || !maps.Equal(index.Manifests[0].Annotations, want) {
		t.Errorf("the layout says %+v, want %v", index.Manifests, want)
	}
	archive, err := os.Open(built.archive())
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var inside, outside []string
	err = eachEntry(archive, func(header *tar.Header, content []byte) error {
		inside = append(inside, header.Name)
		same, err := os.ReadFile(filepath.Join(built.layout(), header.Name))
		if err == nil && !bytes.Equal(content, same) {
			err = fmt.Errorf("%s differs from the layout's", header.Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(built.layout()), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			outside = append(outside, path)
		}
		return err
	})
	if err != nil || !slices.Equal(inside, outside) {
		t.Errorf("the archive has %q, the layout %q, %v", inside, outside, err)
	}
}

// If an image name is invalid, hack/image names the flag in its error and builds nothing.
func TestImageNameIsRefused(t *testing.T) {
	if err := program.DependOnSources(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		arguments []string
		says      string
	}{
		"UpperCase": {[]string{"-name", "UPPER/Case:v1"}, `-name "UPPER/Case:v1" is no name of an image`},
		"Digest":    {[]string{"-name", "x:v9@sha256:" + strings.Repeat("0", 64)}, "the digest is what the build makes"},
		"Words":     {[]string{"-name", "a", "b", "-platform", "linux/arm64"}, `"b" belongs to no flag`},
	} {
		out, err := imageCommand(append([]string{"-out", filepath.Join(t.TempDir(), "image")}, tc.arguments...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), tc.says) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// hack/image is a separate module whose tests need the image: with the commands of docs/install.md, only
// signed images are accepted.
func TestImageModule(t *testing.T) {
	rig.Must(t, program.DependOnSources())
	made, err := theImage()
	rig.Must(t, err)
	_, err = os.ReadFile("../../docs/install.md")
	rig.Must(t, err)
	cmd := exec.Command("go", "test", "-C", "../../hack/image", "-count=1", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath -buildvcs=false",
		"RIG_COSIGN="+cosign.Program(t), "RIG_IMAGE="+made.layout())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ok") {
		t.Errorf("%v\n%s", err, out)
	}
}

// checkBinary checks that a program needs no library, and runs it.
func checkBinary(t *testing.T, name string, content []byte) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if libraries, err := file.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("needs %q", libraries)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, "version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), name+" ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// This tests the Dockerfile without Docker: the files that .dockerignore includes suffice for the build command, and
// the last stage runs as the user of the manifests.
func TestDockerfile(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	stages := strings.Split(string(text), "\nFROM ")
	last := stages[len(stages)-1]
	for _, line := range []string{"scratch\n", "USER " + imageUser + "\n", `ENTRYPOINT ["/keyserver-operator"]` + "\n", "COPY --from=build /rootfs/ /\n"} {
		if !strings.Contains(last, line) {
			t.Errorf("the last stage does not say %q", line)
		}
	}
	if !strings.Contains(string(text), "RUN make build ") {
		t.Fatal("the Dockerfile builds otherwise than this test does")
	}
	context := t.TempDir()
	copyContext(t, root, context)
	build := exec.Command("make", "build")
	build.Dir = context
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"keyserver-operator", "keyserver-agent", "keyserverctl"} {
		if !strings.Contains(string(text), "install -D -m 0755 bin/"+name+" /rootfs/"+name) {
			t.Errorf("the image has no %s", name)
		}
		content, err := os.ReadFile(filepath.Join(context, "bin", name))
		if err != nil {
			t.Fatal(err)
		}
		checkBinary(t, name, content)
	}
}

// copyContext copies the files that .dockerignore includes: it excludes everything, then includes some names,
// and then excludes the tests.
func copyContext(t *testing.T, root, to string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, included := strings.CutPrefix(strings.TrimSpace(line), "!")
		switch {
		case included:
			copyPath(t, root, to, name)
		case !slices.Contains([]string{"*\n", "**/*_test.go\n", "**/node_modules\n", "internal/server/console/dist/*\n"}, line) && !strings.HasPrefix(line, "#"):
			t.Fatalf("this test does not understand %q", line)
		}
	}
}

func copyPath(t *testing.T, root, to, name string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, name), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err == nil && entry.IsDir() && entry.Name() == "node_modules":
			return fs.SkipDir
		case err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go"):
			return err
		case filepath.Base(filepath.Dir(path)) == "dist" && entry.Name() != ".gitkeep": // files of local builds
			return nil
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		target := filepath.Join(to, relative)
		return errors.Join(err, os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, content, 0o700))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The parts of an OCI image that the tests read.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Annotations map[string]string `json:"annotations"`
		Platform    struct {
			OS           string `json:"os"`
			Architecture string `json:"architecture"`
		} `json:"platform"`
	}
	manifest struct {
		MediaType string       `json:"mediaType"`
		Manifests []descriptor `json:"manifests"`
		Config    descriptor   `json:"config"`
		Layers    []descriptor `json:"layers"`
	}
	imageConfig struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
		Config       struct {
			User       string   `json:"User"`
			Env        []string `json:"Env"`
			Entrypoint []string `json:"Entrypoint"`
		} `json:"config"`
	}
	imageFile struct {
		*tar.Header
		content []byte
	}
)

// blob returns the blob with this digest from the OCI image layout in dir.
func blob(t *testing.T, dir, digest string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "blobs", strings.ReplaceAll(digest, ":", "/")))
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); sum != digest {
		t.Fatalf("what is called %s is %s", digest, sum)
	}
	return content
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

// entriesOf returns the entries of the single index in a layout.
func entriesOf(t *testing.T, dir string) []descriptor {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var outer, index manifest
	decode(t, content, &outer)
	if len(outer.Manifests) != 1 {
		t.Fatalf("the layout has %d entries", len(outer.Manifests))
	}
	decode(t, blob(t, dir, outer.Manifests[0].Digest), &index)
	return index.Manifests
}

// runs reports whether an entry is an image of a platform, and not an attestation of one.
func (d descriptor) runs() bool { return d.Platform.OS != "unknown" }

// readImage returns the only runnable image of an OCI layout.
func readImage(t *testing.T, dir string) (imageConfig, map[string]imageFile) {
	t.Helper()
	entries := slices.DeleteFunc(entriesOf(t, dir), func(d descriptor) bool { return !d.runs() })
	if len(entries) != 1 {
		t.Fatalf("%d images", len(entries))
	}
	var m manifest
	decode(t, blob(t, dir, entries[0].Digest), &m)
	var config imageConfig
	decode(t, blob(t, dir, m.Config.Digest), &config)
	files := map[string]imageFile{}
	for _, layer := range m.Layers {
		content := blob(t, dir, layer.Digest)
		var r io.Reader = bytes.NewReader(content)
		if z, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
			r = z
		}
		err := eachEntry(r, func(header *tar.Header, body []byte) error {
			files[strings.Trim(header.Name, "/")] = imageFile{header, body}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return config, files
}

func eachEntry(r io.Reader, visit func(*tar.Header, []byte) error) error {
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if err := visit(header, body); err != nil {
			return err
		}
	}
}

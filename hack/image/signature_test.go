package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// given returns an environment variable that test/install sets when it runs this test.
func given(t *testing.T, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Fatalf("%s is not set: make test PKG=./test/install TEST_FLAGS='-run TestImageModule' runs this", variable)
	}
	return value
}

func madeImage(t *testing.T) v1.ImageIndex {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(given(t, "RIG_IMAGE"))
	must(t, err)
	manifest, err := outer.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %d images", len(manifest.Manifests))
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	return index
}

func someRegistry(t *testing.T) name.Repository {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/keyserver-operator")
	must(t, err)
	return repository
}

func push(t *testing.T, repository name.Repository, tag string, index v1.ImageIndex) name.Digest {
	t.Helper()
	must(t, remote.WriteIndex(repository.Tag(tag), index))
	digest, err := index.Digest()
	must(t, err)
	return repository.Digest(digest.String())
}

// documented returns the commands in docs/install.md that create a key, sign, and verify.
func documented(t *testing.T) (generate, sign, verify string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/install.md")
	must(t, err)
	found := regexp.MustCompile("(?m)^```sh\n(cosign generate-key-pair .*)\n(cosign sign .*)\n(cosign verify .*)\n```$").FindStringSubmatch(string(text))
	if found == nil {
		t.Fatal("docs/install.md has no commands of cosign, in a block of three lines")
	}
	return found[1], found[2], found[3]
}

type signer struct {
	t   *testing.T
	dir string
}

func newSigner(t *testing.T, generate string) signer {
	t.Helper()
	s := signer{t, t.TempDir()}
	s.must(generate, "")
	if key, err := os.ReadFile(filepath.Join(s.dir, "cosign.key")); err != nil || !strings.Contains(string(key), "ENCRYPTED") {
		t.Fatalf("the key is not under a password: %v", err)
	}
	return s
}

// run runs a command of the document for an image. It sets a proxy that does not exist, so the command cannot reach
// other machines.
func (s signer) run(command, image string, more ...string) (said string, err error) {
	cmd := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir = s.dir
	path := filepath.Dir(given(s.t, "RIG_COSIGN")) + string(os.PathListSeparator) + os.Getenv("PATH")
	cmd.Env = append([]string{
		"PATH=" + path, "HOME=" + s.dir, "IMAGE=" + image, "COSIGN_PASSWORD=a password",
		"HTTP_PROXY=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1",
	}, more...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s signer) must(command, image string) string {
	s.t.Helper()
	said, err := s.run(command, image)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, said)
	}
	return said
}

// refuses fails the test unless the command fails with an error that contains the text says.
func (s signer) refuses(reason, command string, image name.Reference, says string, more ...string) {
	s.t.Helper()
	if said, err := s.run(command, image.String(), more...); err == nil || !strings.Contains(said, says) {
		s.t.Errorf("%s: %v\n%s", reason, err, said)
	}
}

// alsoOf copies the signatures of an image to another image.
func alsoOf(t *testing.T, image, other name.Digest) {
	t.Helper()
	found, err := remote.Referrers(image)
	must(t, err)
	manifest, err := found.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) == 0 {
		t.Fatal("the image has no signature")
	}
	about, err := remote.Head(other)
	must(t, err)
	for _, one := range manifest.Manifests {
		signature, err := remote.Image(image.Digest(one.Digest.String()))
		must(t, err)
		moved := mutate.Subject(signature, *about).(v1.Image)
		digest, err := moved.Digest()
		must(t, err)
		must(t, remote.Write(image.Digest(digest.String()), moved))
	}
}

// TestOnlyWhatWasSignedIsTaken checks that the commands of docs/install.md accept an image only if it was signed with
// the key. They refuse an image without a signature, with the signature of another key, and with other content under
// the same tag and a copied signature.
func TestOnlyWhatWasSignedIsTaken(t *testing.T) {
	generate, sign, verify := documented(t)
	repository, mine, stranger := someRegistry(t), newSigner(t, generate), newSigner(t, generate)
	index := madeImage(t)
	image := push(t, repository, "v1", index)
	mine.refuses("nobody has signed it", verify, image, "no signatures found")
	mine.refuses("another password", sign, image, "decryption failed", "COSIGN_PASSWORD=another password")
	mine.refuses("still nobody has signed it", verify, image, "no signatures found")
	mine.must(sign, image.String())
	for _, signed := range []name.Reference{image, repository.Tag("v1")} {
		if said := mine.must(verify, signed.String()); !strings.Contains(said, image.DigestStr()) {
			t.Errorf("it does not say what was signed:\n%s", said)
		}
	}
	stranger.refuses("somebody else has signed it", verify, image, "accepted signatures do not match")

	// The same images without their attestations.
	silent := mutate.RemoveManifests(index, func(d v1.Descriptor) bool { return d.Platform.OS == "unknown" })
	forged := push(t, repository, "v1", silent)
	if forged == image {
		t.Fatal("the forged image is the signed one")
	}
	mine.refuses("put in its place, without a signature", verify, repository.Tag("v1"), "no signatures found")
	alsoOf(t, image, forged)
	mine.refuses("put in its place, with the signature of the image", verify, repository.Tag("v1"), "artifact digest does not match")
	mine.must(verify, image.String())
}

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	"github.com/sigstore/cosign/v2/pkg/oci"
	signed "github.com/sigstore/cosign/v2/pkg/oci/mutate"
	ociremote "github.com/sigstore/cosign/v2/pkg/oci/remote"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// madeImage is an image of two platforms with what is said of it, as this command makes
// them. Its program is the one of this test.
func madeImage(t *testing.T) v1.ImageIndex {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	program, err := os.ReadFile(self)
	must(t, err)
	layer, err := layerOf([]entry{{Header: tar.Header{Name: "ko-app/program", Mode: 0o555, Typeflag: tar.TypeReg}, content: program}})
	must(t, err)
	base, err := baseImage()
	must(t, err)
	var built []platformImage
	for _, platform := range []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}} {
		one, err := forPlatform(base, platform)
		must(t, err)
		one, err = mutate.AppendLayers(one, layer)
		must(t, err)
		file, err := one.ConfigFile()
		must(t, err)
		file = file.DeepCopy()
		file.Config.Entrypoint = []string{"/ko-app/program"}
		one, err = mutate.ConfigFile(one, file)
		must(t, err)
		one = mutate.Annotations(one, map[string]string{"org.opencontainers.image.base.digest": "sha256:" + strings.Repeat("0", 64)}).(v1.Image)
		built = append(built, platformImage{platform, one, []byte(`{"spdxVersion":"SPDX-2.3"}`)})
	}
	index, err := attested(built)
	must(t, err)
	return index
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// someRegistry is one of this test, with a repository in it.
func someRegistry(t *testing.T) name.Repository {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/keyserver-operator")
	must(t, err)
	return repository
}

// push puts an image under a tag, and answers what it is by its digest.
func push(t *testing.T, repository name.Repository, tag string, index v1.ImageIndex) name.Digest {
	t.Helper()
	must(t, remote.WriteIndex(repository.Tag(tag), index))
	digest, err := index.Digest()
	must(t, err)
	return repository.Digest(digest.String())
}

// signer is a key of cosign's, as it lies in a file under a password.
type signer struct {
	signature.SignerVerifier
}

func newSigner(t *testing.T) signer {
	t.Helper()
	pass := []byte("a password")
	keys, err := cosign.GenerateKeyPair(func(bool) ([]byte, error) { return pass, nil })
	must(t, err)
	if _, err := cosign.LoadPrivateKey(keys.PrivateBytes, []byte("another password"), nil); err == nil {
		t.Fatal("the key opens by another password")
	}
	key, err := cosign.LoadPrivateKey(keys.PrivateBytes, pass, nil)
	must(t, err)
	return signer{key}
}

// signature signs an image, for nobody to see yet.
func (s signer) signature(t *testing.T, image name.Digest) oci.Signature {
	t.Helper()
	said, err := payload.Cosign{Image: image}.MarshalJSON()
	must(t, err)
	made, err := s.SignMessage(bytes.NewReader(said))
	must(t, err)
	sealed, err := static.NewSignature(said, base64.StdEncoding.EncodeToString(made))
	must(t, err)
	return sealed
}

// attach puts a signature where cosign looks for those of an image.
func attach(t *testing.T, image name.Digest, made oci.Signature) {
	t.Helper()
	entity, err := ociremote.SignedEntity(image)
	must(t, err)
	entity, err = signed.AttachSignatureToEntity(entity, made)
	must(t, err)
	must(t, ociremote.WriteSignatures(image.Repository, entity))
}

// verify asks cosign whether somebody has signed an image, without a log.
func (s signer) verify(image name.Reference) error {
	found, _, err := cosign.VerifyImageSignatures(context.Background(), image, &cosign.CheckOpts{
		SigVerifier: s, IgnoreTlog: true, ClaimVerifier: cosign.SimpleClaimVerifier, Offline: true,
	})
	if err == nil && len(found) == 0 {
		err = errors.New("there is no signature and no error")
	}
	return err
}

// cosign takes an image that was signed with a key, and nothing else: not before it was
// signed, not by the key of somebody else, and not what has another content, though it has
// the tag of the image and its signature.
func TestOnlyWhatWasSignedIsTaken(t *testing.T) {
	repository, mine, stranger := someRegistry(t), newSigner(t), newSigner(t)
	index := madeImage(t)
	image := push(t, repository, "v1", index)
	if err := mine.verify(image); err == nil {
		t.Fatal("an image is taken that nobody has signed")
	}
	made := mine.signature(t, image)
	attach(t, image, made)
	must(t, mine.verify(image))
	must(t, mine.verify(repository.Tag("v1")))
	if err := stranger.verify(image); err == nil {
		t.Error("an image is taken that somebody else has signed")
	}

	// The same images, without what is said of them.
	silent := mutate.RemoveManifests(index, func(d v1.Descriptor) bool { return d.Platform.OS == "unknown" })
	forged := push(t, repository, "v1", silent)
	if forged == image {
		t.Fatal("the forged image is the signed one")
	}
	if err := mine.verify(repository.Tag("v1")); err == nil {
		t.Error("what was put in its place is taken without a signature")
	}
	attach(t, forged, made)
	if err := mine.verify(repository.Tag("v1")); err == nil {
		t.Error("what was put in its place is taken with the signature of the image")
	}
	must(t, mine.verify(image))
}

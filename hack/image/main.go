// Command image builds the container image with ko into an OCI layout, without
// a Docker daemon and without a registry: the base image is made here, from
// nothing but the public root certificates, and handed to ko by a registry that
// lives in this process for as long as the build takes.
//
//	go run . [-out DIR] [-name REGISTRY/NAME:TAG] [-sbom DIR] [-platform linux/amd64,linux/arm64]
//
// The layout lies in DIR, and as one archive in DIR.tar. Both say what the image
// is called, so that a node that imports it knows what the manifests mean.
//
// To push the layout, "go tool crane push". "ko build" with KO_DOCKER_REPO builds
// and pushes at once, on ko's own base image.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user owns what the process may write to. The manifests and the Dockerfile
// have the same number.
const user = 65532

func main() {
	out := flag.String("out", "bin/image", "directory of the OCI layout; replaced")
	called := flag.String("name", "keyserver-operator", "what the image is called where it is imported: REGISTRY/NAME:TAG")
	sbom := flag.String("sbom", "", "directory for what the image is made of, in SPDX; none is written without it")
	platforms := flag.String("platform", "linux/"+runtime.GOARCH, "platforms, separated by commas")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("image: %q belongs to no flag", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := build(ctx, *out, *called, *sbom, *platforms); err != nil {
		log.Fatalf("image: %v", err)
	}
}

func build(ctx context.Context, out, called, sbom, platforms string) error {
	full, err := reference.ParseDockerRef(called)
	if err != nil {
		return fmt.Errorf("-name %q is no name of an image, such as registry.example/keyserver-operator:v1: %w", called, err)
	}
	if _, digested := full.(reference.Digested); digested {
		return fmt.Errorf("-name %q has a digest; leave it out, the digest is what the build makes", called)
	}
	root, err := filepath.Abs("../..") // this module is hack/image
	if err != nil {
		return err
	}
	if !filepath.IsAbs(out) {
		out = filepath.Join(root, out)
	}
	if err := lock(ctx, out); err != nil {
		return fmt.Errorf("wait until nobody else makes %s: %w", out, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		_ = server.Close() // nothing is under way any more
		<-served
	}()
	base, err := pushBase(ctx, listener.Addr().String(), platforms)
	if err != nil {
		return fmt.Errorf("make the base image: %w", err)
	}
	if err := runKo(ctx, root, base, platforms, sbom, out); err != nil {
		return err
	}
	if err := giveName(out, full); err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	if err := archive(out, out+".tar"); err != nil {
		return fmt.Errorf("make an archive: %w", err)
	}
	fmt.Println(out)
	fmt.Println(out + ".tar")
	return nil
}

// giveName notes in a layout what its one image is called: containerd reads
// its own annotation, other tools the tag of OCI's.
func giveName(dir string, called reference.Named) error {
	image, err := layout.FromPath(dir)
	if err != nil {
		return err
	}
	index, err := image.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("ko made %d images", len(manifest.Manifests))
	}
	one := manifest.Manifests[0]
	one.Annotations = map[string]string{"io.containerd.image.name": called.String()}
	if tagged, ok := called.(reference.Tagged); ok {
		one.Annotations["org.opencontainers.image.ref.name"] = tagged.Tag()
	}
	if err := image.RemoveDescriptors(match.Digests(one.Digest)); err != nil {
		return err
	}
	return image.AppendDescriptor(one)
}

// archive puts the files of a directory into one that is the same for the same
// files. It is in place only when it is complete.
func archive(dir, to string) (err error) {
	made, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreGone(os.Remove(made.Name()))) }()
	w := tar.NewWriter(made)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addFile(w, path, filepath.ToSlash(relative))
	})
	if err := errors.Join(err, w.Close(), made.Chmod(0o644), made.Close()); err != nil {
		return err
	}
	return os.Rename(made.Name(), to)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func addFile(w *tar.Writer, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: about.Size(), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// runKo builds on the base image and puts the layout into out. A relative sbom
// is below root, where ko runs.
func runKo(ctx context.Context, root, base, platforms, sbom, out string) error {
	// ko takes the path for a name of an image and is particular about it, so
	// the layout is made under one that always pleases.
	path := fmt.Sprintf("bin/image-%d", os.Getpid())
	made := filepath.Join(root, path)
	defer func() { _ = os.RemoveAll(made) }() // a later "make clean" does
	materials := []string{"--sbom=none"}
	if sbom != "" {
		materials = []string{"--sbom=spdx", "--sbom-dir", sbom}
	}
	// "go tool" would pick the module of the working directory, which ko needs
	// for the product.
	cmd := exec.CommandContext(ctx, "go", slices.Concat(
		[]string{"tool", "-modfile", filepath.Join(root, "hack", "image", "go.mod"), "ko", "build", "--push=false", "--bare"}, materials,
		[]string{"--platform", platforms, "--oci-layout-path", path, "."})...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(),
		"KO_DEFAULTBASEIMAGE="+base, "KO_DOCKER_REPO=keyserver-operator.local/keyserver-operator", "KOCACHE=")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ko: %w", err)
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	return os.CopyFS(out, os.DirFS(made))
}

// pushBase puts a base image for all platforms into the registry.
func pushBase(ctx context.Context, address, platforms string) (string, error) {
	image, err := baseImage()
	if err != nil {
		return "", err
	}
	var index v1.ImageIndex = empty.Index
	for p := range strings.SplitSeq(platforms, ",") {
		platform, err := v1.ParsePlatform(p)
		if err != nil {
			return "", err
		}
		one, err := forPlatform(image, *platform)
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: platform}})
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	ref, err := name.NewDigest(address + "/base@" + digest.String())
	if err != nil {
		return "", err
	}
	return ref.String(), remote.WriteIndex(ref, index, remote.WithContext(ctx))
}

// baseImage has root certificates, and what the process writes to where no
// volume is mounted.
func baseImage() (v1.Image, error) {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a file cannot say what it is good for
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	layer, err := layerOf([]entry{
		{Header: tar.Header{Name: "data/", Mode: 0o700, Uid: user, Gid: user, Typeflag: tar.TypeDir}},
		{Header: tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}},
		{Header: tar.Header{Name: "etc/", Mode: 0o755, Typeflag: tar.TypeDir}},
		{Header: tar.Header{Name: "etc/ssl/", Mode: 0o755, Typeflag: tar.TypeDir}},
		{Header: tar.Header{Name: "etc/ssl/certs/", Mode: 0o755, Typeflag: tar.TypeDir}},
		{Header: tar.Header{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Typeflag: tar.TypeReg}, content: roots.Bytes()},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, layer)
}

type entry struct {
	tar.Header
	content []byte
}

// layerOf is the same for the same entries, whenever it is made.
func layerOf(entries []entry) (v1.Layer, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, e := range entries {
		e.Size, e.ModTime, e.Format = int64(len(e.content)), time.Unix(0, 0), tar.FormatPAX
		if err := w.WriteHeader(&e.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	})
}

func forPlatform(image v1.Image, platform v1.Platform) (v1.Image, error) {
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = platform.OS, platform.Architecture, platform.Variant
	file.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), // numeric, so that Kubernetes can check runAsNonRoot
		Env:  []string{"PATH=/usr/local/bin:/usr/bin:/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "KEYSERVER_DATA_DIR=/data"},
	}
	return mutate.ConfigFile(image, file)
}

// Command image builds the container images with ko into OCI layouts, without a Docker daemon and without a registry.
// It also builds the base image, which contains only the public root certificates.
//
//	go run . [-out DIR] [-name REGISTRY/NAME:TAG] [-sbom DIR] [-platform linux/amd64,linux/arm64] [-source DIR]
//
// The layout of the operator's image is written to DIR, and as one archive to DIR.tar. The image also contains
// keyserver-agent and keyserverctl. The image of keyserver-agent is written to DIR-agent and DIR-agent.tar. Each
// archive contains the name of its image, so that a node that imports it knows the name in the manifests. The image of
// each platform has attestations of its content and its build. The same sources and the same Go version result in
// identical bytes.
//
// To push the layout, use "go tool crane push". "ko build" with KO_DOCKER_REPO builds and pushes in one step, but on
// another base image and without the attestations.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	out := flag.String("out", "bin/image", "directory of the OCI layout; replaced")
	called := flag.String("name", "keyserver-operator", "what the image is called where it is imported: REGISTRY/NAME:TAG")
	sbom := flag.String("sbom", "", "directory for what the image is made of, in SPDX; none is written without it")
	platforms := flag.String("platform", "linux/"+runtime.GOARCH, "platforms, separated by commas")
	source := flag.String("source", "../..", "directory of the module that is built, with its .ko.yaml") // this module is hack/image
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("image: %q belongs to no flag", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := build(ctx, *source, *out, *called, *sbom, *platforms); err != nil {
		log.Fatalf("image: %v", err)
	}
}

func build(ctx context.Context, source, out, called, sbom, platforms string) error {
	full, err := reference.ParseDockerRef(called)
	if err != nil {
		return fmt.Errorf("-name %q is no name of an image, such as registry.example/keyserver-operator:v1: %w", called, err)
	}
	if _, digested := full.(reference.Digested); digested {
		return fmt.Errorf("-name %q has a digest; leave it out, the digest is what the build makes", called)
	}
	var wanted []v1.Platform
	for p := range strings.SplitSeq(platforms, ",") {
		platform, err := v1.ParsePlatform(p)
		if err != nil {
			return fmt.Errorf("-platform %q: %w", p, err)
		}
		wanted = append(wanted, *platform)
	}
	root, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(out) {
		out = filepath.Join(root, out)
	}
	if sbom != "" && !filepath.IsAbs(sbom) {
		sbom = filepath.Join(root, sbom)
	}
	if err := lock(ctx, out); err != nil {
		return fmt.Errorf("wait until no other process builds %s: %w", out, err)
	}
	agent, err := agentName(full)
	if err != nil {
		return err
	}
	// The image of the operator also contains keyserver-agent and keyserverctl, because some commands run them.
	var programs []platformImage
	for _, one := range []struct {
		directory, out string // if out is empty, no image is written
		name           reference.Named
	}{{"./cmd/keyserver-agent", out + "-agent", agent}, {"./cmd/keyserverctl", "", nil}, {".", out, full}} {
		var contained []platformImage
		if one.directory == "." {
			contained = programs
		}
		base, err := baseIndex(wanted, contained)
		if err != nil {
			return fmt.Errorf("make the base image: %w", err)
		}
		built, err := runKo(ctx, root, one.directory, base, wanted)
		if err != nil {
			return fmt.Errorf("ko: %w", err)
		}
		if err := write(built, one.out, one.name, sbom); err != nil {
			return err
		}
		programs = append(programs, built...)
	}
	return nil
}

// agentName returns the name of the image of keyserver-agent: the operator's name with another last part.
func agentName(operator reference.Named) (reference.Named, error) {
	repository := operator.Name()
	named, err := reference.WithName(repository[:strings.LastIndex(repository, "/")+1] + "keyserver-agent")
	if err != nil {
		return nil, err
	}
	if tagged, ok := operator.(reference.Tagged); ok {
		return reference.WithTag(named, tagged.Tag())
	}
	return named, nil
}

// write writes the list of modules of a program to the directory sbom. It writes the image with its attestations to the
// directory out and to an archive. If out is empty, it writes no image.
func write(built []platformImage, out string, called reference.Named, sbom string) error {
	if err := writeMaterials(sbom, built); err != nil {
		return fmt.Errorf("write what the image is made of: %w", err)
	}
	if out == "" {
		return nil
	}
	index, err := attested(built)
	if err != nil {
		return fmt.Errorf("say what the image is made of: %w", err)
	}
	if err := writeLayout(out, index, called); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	if err := archive(out, out+".tar"); err != nil {
		return fmt.Errorf("make an archive: %w", err)
	}
	fmt.Println(out)
	fmt.Println(out + ".tar")
	return nil
}

// attested returns the index of the images for all platforms. The attestations follow the images, as in BuildKit. So a
// copy of the index includes the attestations, and a signature of its digest covers them.
func attested(built []platformImage) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range built {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one.image, Descriptor: v1.Descriptor{Platform: &one.platform}})
	}
	for _, one := range built {
		said, err := attestation(one)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.platform, err)
		}
		index = mutate.AppendManifests(index, said)
	}
	return index, nil
}

// writeLayout replaces a directory with the OCI layout of an image and its name. containerd reads the name from its own
// annotation, other tools read the tag of OCI.
func writeLayout(dir string, index v1.ImageIndex, called reference.Named) error {
	made := dir + ".made"
	if err := os.RemoveAll(made); err != nil { // left by an interrupted run
		return err
	}
	image, err := layout.Write(made, empty.Index)
	if err != nil {
		return err
	}
	annotations := map[string]string{"io.containerd.image.name": called.String()}
	if tagged, ok := called.(reference.Tagged); ok {
		annotations["org.opencontainers.image.ref.name"] = tagged.Tag()
	}
	if err := image.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(made, dir)
}

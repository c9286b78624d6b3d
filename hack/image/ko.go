package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ko "github.com/google/ko/pkg/build"
	"github.com/google/ko/pkg/commands/options"
	"github.com/sigstore/cosign/v2/pkg/oci"
)

// platformImage is the image of one platform, with its SBOM (SPDX).
type platformImage struct {
	platform  v1.Platform
	image     v1.Image
	materials []byte
}

// runKo builds the program in a directory of the module at root on a base image, with the settings of its .ko.yaml.
func runKo(ctx context.Context, root, directory string, base v1.ImageIndex, platforms []v1.Platform) ([]platformImage, error) {
	// Environment variables for builds of other images must not change this image.
	for _, setting := range []string{"KOCACHE", "KO_CONFIG_PATH", "KO_GO_PATH", "KO_BUILDS", "GOOS", "GOARCH", "GOARM"} {
		if err := os.Unsetenv(setting); err != nil {
			return nil, err
		}
	}
	// The image records this name of its base and the digest of the base for the platform. No host has this name.
	called, err := name.NewTag("made-here.invalid/base:root-certificates")
	if err != nil {
		return nil, err
	}
	configured := options.BuildOptions{WorkingDirectory: root}
	if err := configured.LoadConfig(); err != nil {
		return nil, err
	}
	var wanted []string
	for _, p := range platforms {
		wanted = append(wanted, p.String())
	}
	builder, err := ko.NewGobuilds(ctx, root, configured.BuildConfigs,
		ko.WithBaseImages(func(context.Context, string) (name.Reference, ko.Result, error) { return called, base, nil }),
		ko.WithPlatforms(wanted...),
		ko.WithConfig(configured.BuildConfigs),
		ko.WithTrimpath(true),
		ko.WithSPDX(versionOf("github.com/google/ko")),
	)
	if err != nil {
		return nil, err
	}
	program, err := builder.QualifyImport(directory)
	if err != nil {
		return nil, err
	}
	if err := builder.IsSupportedReference(program); err != nil {
		return nil, err
	}
	result, err := builder.Build(ctx, program)
	if err != nil {
		return nil, err
	}
	return byPlatform(result, platforms)
}

// byPlatform returns the images in a result of ko, which is an image or an index of several images.
func byPlatform(result ko.Result, platforms []v1.Platform) ([]platformImage, error) {
	var built []platformImage
	add := func(platform v1.Platform, image oci.SignedImage) error {
		file, err := image.Attachment("sbom")
		if err != nil {
			return err
		}
		materials, err := file.Payload()
		built = append(built, platformImage{platform, image, materials})
		return err
	}
	switch made := result.(type) {
	case oci.SignedImage:
		err := add(platforms[0], made)
		return built, err
	case oci.SignedImageIndex:
		list, err := made.IndexManifest()
		if err != nil {
			return nil, err
		}
		for _, d := range list.Manifests {
			image, err := made.SignedImage(d.Digest)
			if err != nil {
				return nil, err
			}
			if err := add(*d.Platform, image); err != nil {
				return nil, err
			}
		}
		return built, nil
	}
	return nil, fmt.Errorf("it has made a %T", result)
}

func writeMaterials(dir string, built []platformImage) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, one := range built {
		program, err := entrypoint(one.image)
		if err != nil {
			return err
		}
		file := fmt.Sprintf("%s-%s-%s.spdx.json", filepath.Base(program), one.platform.OS, one.platform.Architecture)
		if err := os.WriteFile(filepath.Join(dir, file), one.materials, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func versionOf(module string) string {
	if about, ok := debug.ReadBuildInfo(); ok {
		for _, d := range about.Deps {
			if d.Path == module {
				return d.Version
			}
		}
	}
	return "unknown"
}

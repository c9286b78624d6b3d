package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user id of the process and the owner of its writable directories. The manifests and the Dockerfile use
// the same id.
const user = 65532

// baseIndex returns the base image for ko for each platform. It also contains the programs of the images in programs,
// which must have the same platforms.
func baseIndex(platforms []v1.Platform, programs []platformImage) (v1.ImageIndex, error) {
	image, err := baseImage()
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		one, err := forPlatform(image, platform)
		if err != nil {
			return nil, err
		}
		for _, program := range programs {
			if !program.platform.Equals(platform) {
				continue
			}
			layers, err := program.image.Layers()
			if err != nil {
				return nil, err
			}
			if one, err = mutate.AppendLayers(one, layers[len(layers)-1]); err != nil { // the last layer contains the program
				return nil, err
			}
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return index, nil
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

// baseImage returns an image with root certificates and with the directories to which the process writes without a
// volume.
func baseImage() (v1.Image, error) {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a certificate file cannot contain the constraint
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
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.AppendLayers(image, layer)
}

type entry struct {
	tar.Header
	content []byte
}

// layerOf returns a layer. Identical entries result in identical bytes.
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
	}, tarball.WithMediaType(types.OCILayer))
}

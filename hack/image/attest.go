package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// The types of the statements, and BuildKit's annotations of the descriptors of statements.
const (
	materialsType  = "https://spdx.dev/Document"
	provenanceType = "https://slsa.dev/provenance/v1"

	statementMedia = types.MediaType("application/vnd.in-toto+json")
	predicateType  = "in-toto.io/predicate-type"
	ofDigest       = "vnd.docker.reference.digest"
	ofType         = "vnd.docker.reference.type"

	// The document at this URL describes the build.
	buildType = "https://github.com/keyserver-operator/keyserver-operator/blob/main/docs/adr/0069-what-an-image-says-of-itself.md"
	builder   = "https://github.com/keyserver-operator/keyserver-operator/tree/main/hack/image"
)

// attestation returns the attestations of a platform's image, as an entry of the index that contains the image.
func attestation(of platformImage) (mutate.IndexAddendum, error) {
	digest, err := of.image.Digest()
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	materials := &structpb.Struct{}
	if err := materials.UnmarshalJSON(of.materials); err != nil {
		return mutate.IndexAddendum{}, err
	}
	provenance, err := provenanceOf(of)
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, said := range []struct {
		about     string
		predicate *structpb.Struct
	}{{materialsType, materials}, {provenanceType, provenance}} {
		text, err := statement(digest, said.about, said.predicate)
		if err != nil {
			return mutate.IndexAddendum{}, fmt.Errorf("%s: %w", said.about, err)
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: static.NewLayer(text, statementMedia), MediaType: statementMedia,
			Annotations: map[string]string{predicateType: said.about},
		})
		if err != nil {
			return mutate.IndexAddendum{}, err
		}
	}
	// An attestation cannot be run, so it has no platform.
	nowhere := v1.Platform{OS: "unknown", Architecture: "unknown"}
	file, err := image.ConfigFile()
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = nowhere.OS, nowhere.Architecture
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return mutate.IndexAddendum{}, err
	}
	return mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
		Platform: &nowhere, Annotations: map[string]string{ofType: "attestation-manifest", ofDigest: digest.String()},
	}}, nil
}

// statement returns a statement about an image. Identical input results in identical bytes.
func statement(of v1.Hash, about string, predicate *structpb.Struct) ([]byte, error) {
	s := &intoto.Statement{
		Type:          intoto.StatementTypeUri,
		Subject:       []*intoto.ResourceDescriptor{{Name: "keyserver-operator", Digest: map[string]string{of.Algorithm: of.Hex}}},
		PredicateType: about,
		Predicate:     predicate,
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return stable(protojson.Marshal(s))
}

// stable removes the white space that protojson adds at random.
func stable(text []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Compact(&out, text)
	return out.Bytes(), err
}

// provenanceOf describes the inputs of an image, according to the build information of its program. It contains no time
// and no machine, because the same sources result in the same image on every machine.
func provenanceOf(of platformImage) (*structpb.Struct, error) {
	about, err := readBuildInfo(of.image)
	if err != nil {
		return nil, fmt.Errorf("read what the program is made of: %w", err)
	}
	manifest, err := of.image.Manifest()
	if err != nil {
		return nil, err
	}
	external, err := structpb.NewStruct(map[string]any{"package": about.Path, "platform": of.platform.String()})
	if err != nil {
		return nil, err
	}
	settings := map[string]any{"go": about.GoVersion}
	for _, s := range about.Settings {
		if !strings.HasPrefix(s.Key, "vcs") { // the source is listed as a dependency instead
			settings[s.Key] = s.Value
		}
	}
	internal, err := structpb.NewStruct(settings)
	if err != nil {
		return nil, err
	}
	source, err := sourceOf(about)
	if err != nil {
		return nil, err
	}
	algorithm, base, _ := strings.Cut(manifest.Annotations[specs.AnnotationBaseImageDigest], ":")
	dependencies := []*intoto.ResourceDescriptor{
		source,
		{Name: "base image", Digest: map[string]string{algorithm: base}},
		{Name: "go", Uri: "pkg:generic/go@" + strings.TrimPrefix(about.GoVersion, "go")},
	}
	for _, d := range about.Deps {
		if d.Replace != nil && strings.HasPrefix(d.Replace.Path, "./") {
			continue // a directory of the source repository, such as clients/go
		}
		one, err := moduleOf(d)
		if err != nil {
			return nil, err
		}
		dependencies = append(dependencies, one)
	}
	p := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: buildType, ExternalParameters: external, InternalParameters: internal, ResolvedDependencies: dependencies,
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: builder, Version: map[string]string{"ko": versionOf("github.com/google/ko")}}},
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(p)
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	return predicate, predicate.UnmarshalJSON(text)
}

// sourceOf returns the commit from which a program was built. If the checkout had local changes, or Git was not
// available, only the module is known.
func sourceOf(about *debug.BuildInfo) (*intoto.ResourceDescriptor, error) {
	source := &intoto.ResourceDescriptor{Name: "source", Uri: "git+https://" + about.Main.Path}
	stamped := map[string]string{}
	for _, s := range about.Settings {
		stamped[s.Key] = s.Value
	}
	commit, known := stamped["vcs.revision"]
	changed := stamped["vcs.modified"] == "true"
	if known && !changed {
		source.Digest = map[string]string{"gitCommit": commit}
		return source, nil
	}
	note := map[string]any{"commit": "unknown"}
	if known {
		note = map[string]any{"commit": commit, "modified": changed}
	}
	var err error
	source.Annotations, err = structpb.NewStruct(note)
	return source, err
}

func moduleOf(d *debug.Module) (*intoto.ResourceDescriptor, error) {
	if d.Replace != nil {
		d = d.Replace
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(d.Sum, "h1:"))
	if err != nil || len(sum) == 0 {
		return nil, fmt.Errorf("the module %s has no sum", d.Path)
	}
	called := "pkg:golang/" + strings.ToLower(d.Path) + "@" + url.QueryEscape(d.Version) // in the format of package URLs
	return &intoto.ResourceDescriptor{
		Name: d.Path, Uri: called, Digest: map[string]string{"dirHash": hex.EncodeToString(sum)},
	}, nil
}

func entrypoint(image v1.Image) (string, error) {
	file, err := image.ConfigFile()
	if err != nil {
		return "", err
	}
	if len(file.Config.Entrypoint) != 1 {
		return "", fmt.Errorf("it starts %q", file.Config.Entrypoint)
	}
	return file.Config.Entrypoint[0], nil
}

func readBuildInfo(image v1.Image) (*debug.BuildInfo, error) {
	program, err := entrypoint(image)
	if err != nil {
		return nil, err
	}
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("there is no %s", program)
		}
		if err != nil {
			return nil, err
		}
		if strings.Trim(header.Name, "/") != strings.Trim(program, "/") || header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		return buildinfo.Read(bytes.NewReader(content))
	}
}

// Package config has the manifests that are embedded in the binary.
package config

import (
	"embed"
	"fmt"
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed crd/bases/*.yaml
var bases embed.FS

// CRDs returns the generated custom resource definitions. The caller may change them.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	const dir = "crd/bases"
	files, err := bases.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, len(files))
	for i, f := range files {
		content, err := bases.ReadFile(path.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(content, &crds[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return crds, nil
}

// Samples are the example objects under samples. Those for three federated key servers are in a separate directory.
//
//go:embed samples/*.yaml samples/federation/*.yaml
var Samples embed.FS

// KeyServer is the KeyServer of the installation in config/default.
//
//go:embed keyserver/keyserver.yaml
var KeyServer []byte

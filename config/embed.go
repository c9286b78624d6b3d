// Package config has the manifests that are embedded in the binary.
package config

import "embed"

// CRDs are the generated custom resource definitions, under crd/bases.
//
//go:embed crd/bases/*.yaml
var CRDs embed.FS

// Samples are the example objects under samples. Those for three federated key servers are in a separate directory.
//
//go:embed samples/*.yaml samples/federation/*.yaml
var Samples embed.FS

// KeyServer is the KeyServer of the installation in config/default.
//
//go:embed keyserver/keyserver.yaml
var KeyServer []byte

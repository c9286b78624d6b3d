// Package config holds the manifests that the binary brings with it.
package config

import "embed"

// CRDs are the generated custom resource definitions, under crd/bases.
//
//go:embed crd/bases/*.yaml
var CRDs embed.FS

// Samples are the example objects, under samples; those of three key servers
// that trust each other are in a directory of their own.
//
//go:embed samples/*.yaml samples/federation/*.yaml
var Samples embed.FS

// KeyServer is the KeyServer of the installation in config/default.
//
//go:embed keyserver/keyserver.yaml
var KeyServer []byte

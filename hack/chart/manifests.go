package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// source is a kustomization, and a filter that selects the objects for a file of the chart.
type source struct {
	kustomization string
	wanted        func(*resource.Resource) bool
}

// forms contains the kustomization for each value of "form". Their custom resource definitions are in the file crds.
var forms = map[string]string{"embedded": "default", "postgres": "overlays/postgres", "postgres-ha": "overlays/postgres-ha"}

// monitored is the path of a kustomization with the component for Prometheus, which is not part of the default one.
const monitored = "composed/monitored"

func build(config string) (map[string][][]byte, error) {
	copied, err := compose(config, monitored, kustomize.Kustomization{Resources: []string{"../../default"}, Components: []string{"../../prometheus"}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(copied) }() // if it fails, only temporary files remain
	plain, err := run(copied, "default")
	if err != nil {
		return nil, err
	}
	var known []string
	for _, r := range plain {
		known = append(known, r.CurId().String())
	}
	definition := func(r *resource.Resource) bool { return r.GetKind() == "CustomResourceDefinition" }
	all := func(*resource.Resource) bool { return true }
	sources := map[string]source{
		"crds":               {"default", definition},
		"volume":             {"volume", func(r *resource.Resource) bool { return r.GetKind() == "PersistentVolumeClaim" }},
		"access-secrets":     {"access/secrets", all},
		"access-publish":     {"access/publish", all},
		"monitoring":         {monitored, func(r *resource.Resource) bool { return !slices.Contains(known, r.CurId().String()) }},
		"keyserver-embedded": {"keyserver", all},
		"keyserver-postgres": {"overlays/postgres/keyserver", all},
	}
	for form, kustomization := range forms {
		sources[form] = source{kustomization, func(r *resource.Resource) bool { return !definition(r) }}
	}
	manifests := map[string][][]byte{}
	for name, from := range sources {
		resources, err := run(copied, from.kustomization)
		if err != nil {
			return nil, err
		}
		for _, r := range resources {
			if !from.wanted(r) {
				continue
			}
			text, err := r.AsYAML()
			if err != nil {
				return nil, err
			}
			manifests[name] = append(manifests[name], text)
		}
		if len(manifests[name]) == 0 {
			return nil, fmt.Errorf("config/%s has nothing for manifests/%s.yaml", from.kustomization, name)
		}
	}
	return manifests, nil
}

// compose returns a temporary copy of config with one more kustomization. The copy is necessary, because a kustomization
// can refer only to directories next to it. The caller removes the copy.
func compose(config, name string, added kustomize.Kustomization) (string, error) {
	copied, err := os.MkdirTemp("", "chart-")
	if err != nil {
		return "", err
	}
	text, err := yaml.Marshal(added)
	err = errors.Join(err,
		os.CopyFS(copied, os.DirFS(config)),
		os.MkdirAll(filepath.Join(copied, name), 0o700),
		os.WriteFile(filepath.Join(copied, name, "kustomization.yaml"), text, 0o600),
	)
	if err != nil {
		err = errors.Join(err, os.RemoveAll(copied))
	}
	return copied, err
}

func run(config, name string) ([]*resource.Resource, error) {
	options := krusty.MakeDefaultOptions()
	options.PluginConfig = kustomize.DisabledPluginConfig()
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), filepath.Join(config, name))
	if err != nil {
		return nil, fmt.Errorf("build config/%s: %w", name, err)
	}
	return built.Resources(), nil
}

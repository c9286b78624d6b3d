package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"

	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// release writes the files of a release that install the image: volume.yaml and install.yaml, for kubectl, and the
// archive of the chart, for Helm. The namespace and the volume are in a file of their own, so that deleting
// install.yaml deletes no key. The same checkout and image give the same bytes.
func release(checkout, image, into string) error {
	of := imageName.FindStringSubmatch(image)
	if of == nil {
		return fmt.Errorf("-image is %q; it must be NAME:TAG or NAME:TAG@sha256:DIGEST", image)
	}
	one := kustomize.Image{Name: "keyserver-operator", NewName: of[1], NewTag: of[2], Digest: of[3]}
	config := filepath.Join(checkout, "config")
	volume, err := manifests(config, "volume", one)
	if err != nil {
		return err
	}
	program, err := manifests(config, "default", one)
	if err != nil {
		return err
	}
	archive, name, err := packed(filepath.Join(checkout, chart), one)
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(into, 0o750),
		write(filepath.Join(into, "volume.yaml"), append([]byte(volumeHeader), volume...)),
		write(filepath.Join(into, "install.yaml"), append([]byte(header), program...)),
		write(filepath.Join(into, name), archive),
	)
}

// imageName has groups for the name, the tag and, optionally, the digest.
var imageName = regexp.MustCompile(`^([^@\s]+):([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})(?:@(sha256:[0-9a-f]{64}))?$`)

// volumeHeader and header are the beginnings of the files for kubectl.
const (
	volumeHeader = `# The namespace and the volume. Deleting them deletes every key.
`
	header = `# The CRDs, the operator and the key server:
#
#   kubectl apply --server-side -f volume.yaml -f install.yaml
#
# If the issuer of the cluster is not https://kubernetes.default.svc.cluster.local (kubeadm, kind), first replace
# KEYSERVER_OIDC_ISSUER below. docs/install.md and docs/uninstall.md describe the steps before and after.
`
)

// manifests returns the objects of a directory of config with the image.
func manifests(config, directory string, image kustomize.Image) ([]byte, error) {
	const composed = "composed/release"
	copied, err := compose(config, composed, kustomize.Kustomization{Resources: []string{"../../" + directory}, Images: []kustomize.Image{image}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(copied) }() // if it fails, only temporary files remain
	built, err := run(copied, composed)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, r := range built {
		object, err := r.AsYAML()
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(object)
	}
	return out.Bytes(), nil
}

// packed returns the archive of the chart whose default image has the name of the given one, and the name of the
// archive.
func packed(directory string, image kustomize.Image) (archive []byte, name string, err error) {
	var about struct{ Name, Version string }
	text, err := os.ReadFile(filepath.Join(directory, "Chart.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &about)
	}
	if err != nil {
		return nil, "", err
	}
	if image.NewTag != "v"+about.Version {
		return nil, "", fmt.Errorf("-image has the tag %s, but the chart is %s; use the tag v%[2]s", image.NewTag, about.Version)
	}
	// The tag stays empty, which means that of the chart. A tag here would survive "helm upgrade --reuse-values".
	const repository = "\n  repository: keyserver-operator\n"

	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	files := tar.NewWriter(compressed)
	err = fs.WalkDir(os.DirFS(directory), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(directory, filepath.FromSlash(file)))
		if err != nil {
			return err
		}
		if file == "values.yaml" {
			if !bytes.Contains(text, []byte(repository)) {
				return fmt.Errorf("%s does not have %q", file, repository)
			}
			text = bytes.Replace(text, []byte(repository), []byte("\n  repository: "+image.NewName+"\n"), 1)
		}
		if err := files.WriteHeader(&tar.Header{Name: path.Join(about.Name, file), Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = files.Write(text)
		return err
	})
	if err := errors.Join(err, files.Close(), compressed.Close()); err != nil {
		return nil, "", fmt.Errorf("pack the chart: %w", err)
	}
	return out.Bytes(), about.Name + "-" + about.Version + ".tgz", nil
}

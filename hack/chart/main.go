// Command chart generates parts of the Helm chart in config/chart: the manifests that its templates use, and the README
// with the table of its values. The manifests are the output of kustomize for config. With -image and -out, it instead
// writes the files of a release that install this image.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

const chart = "config/chart"

func main() {
	image := flag.String("image", "", "image of the release, as NAME:TAG or NAME:TAG@sha256:DIGEST, with the version of the chart as tag")
	out := flag.String("out", "", "directory for volume.yaml, install.yaml and the chart's archive")
	flag.Parse()
	var err error
	if *out == "" {
		err = generate(".")
	} else {
		err = release(".", *image, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func generate(checkout string) error {
	manifests, err := build(filepath.Join(checkout, "config"))
	if err != nil {
		return err
	}
	directory := filepath.Join(checkout, chart)
	page, err := readme(directory)
	if err != nil {
		return err
	}
	into := filepath.Join(directory, "manifests")
	// Removing the directory also removes manifests whose source does not exist any more.
	if err := errors.Join(os.RemoveAll(into), os.MkdirAll(into, 0o750)); err != nil {
		return err
	}
	for name, documents := range manifests {
		text := append([]byte("# Made from config by \"make generate\". Change it there.\n"), bytes.Join(documents, []byte("---\n"))...)
		if err := write(filepath.Join(into, name+".yaml"), text); err != nil {
			return err
		}
	}
	return write(filepath.Join(directory, "README.md"), page)
}

// write writes a file that every user may read, as in Git.
func write(path string, text []byte) error {
	return os.WriteFile(path, text, 0o644) //nolint:gosec // nothing in it is secret
}

// Command kinds writes the files that list the kinds of the custom resources. Each template in the directory files
// becomes the file with the same path in the working directory, and those of alsoAt. It also adds the deprecated
// version to the definitions.
package main

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

//go:embed files
var templates embed.FS

func main() {
	files, err := render(".")
	if err == nil {
		err = addDeprecated("config/crd/bases")
	}
	for path, text := range files {
		if err == nil {
			err = os.WriteFile(path, text, 0o644) //nolint:gosec // readable for all, as in git
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kinds:", err)
		os.Exit(1)
	}
}

// alsoAt has further paths of a file, because a kustomization can read files only in its own directory.
var alsoAt = map[string][]string{"config/keyserver/keyserver.yaml": {
	"config/default/keyserver.yaml", "config/overlays/postgres/keyserver.yaml", "config/overlays/postgres/keyserver/keyserver.yaml",
}}

// render returns the text of each generated file by its path in the checkout.
func render(checkout string) (map[string][]byte, error) {
	references, err := referencesOf(v1beta1.Kinds)
	if err != nil {
		return nil, err
	}
	functions := template.FuncMap{
		"all":     func() []v1beta1.Kind { return sorted(func(v1beta1.Kind) bool { return true }) },
		"managed": func() []v1beta1.Kind { return sorted(v1beta1.Kind.Managed) },
		"names":   func(kinds []v1beta1.Kind) string { return join(kinds, func(k v1beta1.Kind) string { return k.Name }) },
		"list": func(kinds []v1beta1.Kind) string {
			return join(kinds, func(k v1beta1.Kind) string { return k.Resource })
		},
		"group":      func() string { return v1beta1.GroupVersion.Group },
		"references": func() []reference { return references },
		"samples":    func() ([]string, error) { return samples(checkout) },
		"replicas":   func(path string) bool { return strings.HasPrefix(path, "config/overlays/") },
	}
	files := map[string][]byte{}
	err = fs.WalkDir(templates, "files", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		layout, err := templates.ReadFile(name)
		if err != nil {
			return err
		}
		t, err := template.New(name).Funcs(functions).Parse(string(layout))
		if err != nil {
			return err
		}
		first := strings.TrimSuffix(strings.TrimPrefix(name, "files/"), ".tmpl")
		for _, path := range append([]string{first}, alsoAt[first]...) {
			var text bytes.Buffer
			if err := t.Execute(&text, path); err != nil {
				return err
			}
			files[path] = text.Bytes()
		}
		return nil
	})
	return files, err
}

// sorted returns the kinds for which wanted returns true, sorted by the names of their resources.
func sorted(wanted func(v1beta1.Kind) bool) []v1beta1.Kind {
	kinds := slices.DeleteFunc(slices.Clone(v1beta1.Kinds), func(k v1beta1.Kind) bool { return !wanted(k) })
	slices.SortFunc(kinds, func(a, b v1beta1.Kind) int { return strings.Compare(a.Resource, b.Resource) })
	return kinds
}

func join(kinds []v1beta1.Kind, text func(v1beta1.Kind) string) string {
	texts := make([]string, len(kinds))
	for i, k := range kinds {
		texts[i] = text(k)
	}
	return strings.Join(texts, ", ")
}

func samples(checkout string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(checkout, "config", "samples", "*.yaml"))
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = filepath.Base(file)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "kustomization.yaml" }), err
}

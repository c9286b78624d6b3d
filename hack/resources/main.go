// Command resources generates docs/resources.md from resources.md.tmpl. The reference of the custom resources in it
// comes from the generated custom resource definitions and from Go source.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/template"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

//go:embed resources.md.tmpl
var layout string

func main() {
	page, err := render(os.DirFS("."))
	if err == nil {
		_, err = os.Stdout.Write(page)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "resources:", err)
		os.Exit(1)
	}
}

func render(checkout fs.FS) ([]byte, error) {
	book, err := readKinds(checkout)
	if err != nil {
		return nil, err
	}
	code, err := readCode(checkout)
	if err != nil {
		return nil, err
	}
	t, err := template.New("resources.md").Funcs(template.FuncMap{
		"sample":      func(name string) (string, error) { return sample(checkout, name) },
		"kinds":       kinds,
		"kind":        book.kind,
		"shared":      book.sharedFields,
		"conditions":  code.conditions,
		"reasons":     reasons,
		"annotations": code.annotations,
		"finalizers":  code.finalizers,
		"events":      code.events,
	}).Parse(layout)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	if err := t.Execute(&page, nil); err != nil {
		return nil, err
	}
	for _, kind := range kinds() {
		if !strings.Contains(page.String(), "\n### "+kind+"\n") || !strings.Contains(page.String(), "\n| [`"+kind+"`](#"+strings.ToLower(kind)+") |") {
			return nil, fmt.Errorf("resources.md.tmpl has no section about %s, or no row in the table of kinds", kind)
		}
	}
	return page.Bytes(), nil
}

func kinds() []string {
	names := make([]string, len(v1beta1.Kinds))
	for i, k := range v1beta1.Kinds {
		names[i] = k.Name
	}
	return names
}

// sample returns a file of config/samples as a code block. Its first line is the path at which readers save their copy.
func sample(checkout fs.FS, name string) (string, error) {
	text, err := fs.ReadFile(checkout, "config/samples/"+name)
	if err != nil {
		return "", err
	}
	return "```yaml\n# trust/" + name + "\n" + string(text) + "```", nil
}

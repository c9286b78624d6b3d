package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

//go:embed README.md.tmpl
var layout string

type value struct {
	Name, Default, Description string
}

// node contains the parts of a JSON schema that the table needs.
type node struct {
	Description string
	Properties  map[string]node
}

// readme returns the README of the chart, with the values of its schema and their defaults. It fails if a value is
// missing in the schema or in the defaults.
func readme(directory string) ([]byte, error) {
	var schema node
	text, err := os.ReadFile(filepath.Join(directory, "values.schema.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, fmt.Errorf("values.schema.json: %w", err)
	}
	var defaults map[string]any
	if text, err = os.ReadFile(filepath.Join(directory, "values.yaml")); err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(text, &defaults); err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	delete(schema.Properties, "global") // this value belongs to Helm
	values, err := table(nil, schema, defaults)
	if err != nil {
		return nil, err
	}
	t, err := template.New("README.md").Parse(layout)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = t.Execute(&page, values)
	return page.Bytes(), err
}

// table lists the values below a path in schema and defaults.
func table(at []string, schema node, defaults map[string]any) ([]value, error) {
	var values []value
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, known := schema.Properties[name]; !known {
			return nil, fmt.Errorf("values.yaml has %s, which values.schema.json does not know", strings.Join(append(at, name), "."))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		path := append(slices.Clone(at), name)
		of := schema.Properties[name]
		given, there := defaults[name]
		switch below, isMap := given.(map[string]any); {
		case !there:
			return nil, fmt.Errorf("values.schema.json has %s, which values.yaml does not name", strings.Join(path, "."))
		case len(of.Properties) > 0 && isMap:
			more, err := table(path, of, below)
			if err != nil {
				return nil, err
			}
			values = append(values, more...)
		case of.Description == "":
			return nil, fmt.Errorf("values.schema.json does not describe %s", strings.Join(path, "."))
		default:
			shown, err := json.Marshal(given)
			if err != nil {
				return nil, err
			}
			values = append(values, value{strings.Join(path, "."), string(shown), of.Description})
		}
	}
	return values, nil
}

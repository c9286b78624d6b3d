package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

const bases = "config/crd/bases"

type (
	definition = apiextensionsv1.CustomResourceDefinition
	schema     = apiextensionsv1.JSONSchemaProps
	properties = map[string]schema
)

// book contains every kind, and the fields that all namespaced kinds have.
type book struct {
	kinds        map[string]*definition
	spec, status properties // the fields that all namespaced kinds have
}

func readKinds(checkout fs.FS) (*book, error) {
	files, err := fs.Glob(checkout, bases+"/*.yaml")
	if err != nil {
		return nil, err
	}
	b := &book{kinds: map[string]*definition{}}
	for _, file := range files {
		text, err := fs.ReadFile(checkout, file)
		if err != nil {
			return nil, err
		}
		crd := &definition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(crd.Spec.Versions) == 0 || crd.Spec.Versions[0].Name != v1beta1.GroupVersion.Version {
			return nil, fmt.Errorf("%s: the first version must be %s, which the page describes", file, v1beta1.GroupVersion.Version)
		}
		b.kinds[crd.Spec.Names.Kind] = crd
	}
	if len(b.kinds) == 0 {
		return nil, errors.New("no definitions in " + bases + "; run it at the top of a checkout")
	}
	b.findShared()
	return b, nil
}

func part(crd *definition, name string) schema {
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[name]
}

func (b *book) findShared() {
	common := func(name string) (fields properties) {
		for _, crd := range b.kinds {
			if crd.Spec.Scope != apiextensionsv1.NamespaceScoped {
				continue
			}
			have := part(crd, name).Properties
			if fields == nil {
				fields = maps.Clone(have)
			}
			maps.DeleteFunc(fields, func(field string, s schema) bool {
				return !reflect.DeepEqual(s, have[field])
			})
		}
		return fields
	}
	b.spec, b.status = common("spec"), common("status")
}

func (b *book) sharedFields(name string) string {
	object := schema{Properties: b.spec}
	if name == "status" {
		object.Properties = b.status
	}
	return strings.TrimSpace(fieldTable(name, object, nil) + ruleTable(name, object, nil))
}

func (b *book) kind(name string) (string, error) {
	crd, ok := b.kinds[name]
	if !ok {
		return "", fmt.Errorf("there is no kind %s in %s", name, bases)
	}
	var out strings.Builder
	names := crd.Spec.Names
	fmt.Fprintf(&out, "| | |\n|---|---|\n| resource | `%s.%s` |\n", names.Plural, crd.Spec.Group)
	fmt.Fprintf(&out, "| apiVersion | `%s/%s` |\n", crd.Spec.Group, crd.Spec.Versions[0].Name)
	fmt.Fprintf(&out, "| scope | %s |\n", crd.Spec.Scope)
	fmt.Fprintf(&out, "| short name | %s |\n", quoted(names.ShortNames))
	fmt.Fprintf(&out, "| category | %s |\n", quoted(names.Categories))
	fmt.Fprintf(&out, "| columns of `kubectl get` | %s |\n", columns(crd, false))
	fmt.Fprintf(&out, "| more with `-o wide` | %s |\n", columns(crd, true))
	var skip [2]properties
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		skip = [2]properties{b.spec, b.status}
	}
	for i, section := range []string{"spec", "status"} {
		object := part(crd, section)
		out.WriteString("\n" + fieldTable(section, object, skip[i]))
		if section == "spec" {
			out.WriteString(ruleTable(section, object, skip[i]))
		}
	}
	return strings.TrimSpace(out.String()), nil
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

func columns(crd *definition, wide bool) string {
	var names []string
	for _, c := range crd.Spec.Versions[0].AdditionalPrinterColumns {
		if (c.Priority > 0) == wide {
			names = append(names, c.Name)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

type field struct {
	path     string
	required bool
	schema   schema
}

// fieldsOf returns the fields below a field; a parent comes before its children. It does not return the fields of types
// of Kubernetes.
func fieldsOf(at string, object schema, skip properties) []field {
	var all []field
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		if _, shared := skip[name]; shared {
			continue
		}
		f := field{at + "." + name, slices.Contains(object.Required, name), object.Properties[name]}
		all = append(all, f)
		switch {
		case name == "conditions", isSelector(f.schema):
		case f.schema.Items != nil:
			all = append(all, fieldsOf(f.path+"[]", *f.schema.Items.Schema, nil)...)
		default:
			all = append(all, fieldsOf(f.path, f.schema, nil)...)
		}
	}
	return all
}

func isSelector(schema schema) bool {
	_, expressions := schema.Properties["matchExpressions"]
	_, labels := schema.Properties["matchLabels"]
	return expressions && labels
}

func fieldTable(at string, object schema, skip properties) string {
	fields := fieldsOf(at, object, skip)
	if len(fields) == 0 {
		return ""
	}
	var out strings.Builder
	if at == "spec" {
		out.WriteString("| field | type | default | |\n|---|---|---|---|\n")
		for _, f := range fields {
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", f.path, typeOf(f.schema), defaultOf(f), cell(describe(f.schema)))
		}
		return out.String()
	}
	out.WriteString("| field | type | |\n|---|---|---|\n")
	for _, f := range fields {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", f.path, typeOf(f.schema), cell(describe(f.schema)))
	}
	return out.String()
}

func typeOf(s schema) string {
	switch {
	case s.Items != nil && s.XListMapKeys != nil:
		return "list of objects, merged by " + quoted(s.XListMapKeys)
	case s.Items != nil && s.XListType != nil && *s.XListType == "set":
		return "set of " + plural(typeOf(*s.Items.Schema))
	case s.Items != nil:
		return "list of " + plural(typeOf(*s.Items.Schema))
	case len(s.Enum) > 0:
		return "one of " + enumOf(s)
	case s.Format == "date-time":
		return "time"
	default:
		return s.Type
	}
}

func plural(name string) string {
	if strings.HasPrefix(name, "one of ") {
		return strings.TrimPrefix(name, "one of ")
	}
	return name + "s"
}

func enumOf(s schema) string {
	values := make([]string, len(s.Enum))
	for i, v := range s.Enum {
		values[i] = strings.Trim(string(v.Raw), `"`)
	}
	return quoted(values)
}

func defaultOf(f field) string {
	switch {
	case f.required:
		return "**required**"
	case f.schema.Default != nil:
		var v any
		if err := json.Unmarshal(f.schema.Default.Raw, &v); err != nil {
			return ""
		}
		if text, ok := v.(string); ok {
			return "`" + text + "`"
		}
		return "`" + string(f.schema.Default.Raw) + "`"
	default:
		return ""
	}
}

func describe(s schema) string {
	text := strings.Join(strings.Fields(s.Description), " ")
	if bounds := boundsOf(s); bounds != "" {
		text = strings.TrimSpace(text + " *" + bounds + ".*")
	}
	return text
}

func boundsOf(s schema) string {
	var bounds []string
	add := func(least, most *int64, of string) {
		switch {
		case least != nil && most != nil:
			bounds = append(bounds, fmt.Sprintf("%d to %d %s", *least, *most, of))
		case most != nil:
			bounds = append(bounds, fmt.Sprintf("At most %d %s", *most, of))
		case least != nil:
			bounds = append(bounds, fmt.Sprintf("At least %d %s", *least, of))
		}
	}
	add(s.MinLength, s.MaxLength, "characters")
	add(s.MinItems, s.MaxItems, "items")
	if s.Items != nil {
		add(s.Items.Schema.MinLength, s.Items.Schema.MaxLength, "characters each")
	}
	if s.Minimum != nil && s.Maximum != nil {
		bounds = append(bounds, fmt.Sprintf("%.0f to %.0f", *s.Minimum, *s.Maximum))
	}
	return strings.Join(bounds, ", ")
}

// ruleTable lists the validation rules of the API server with their messages.
func ruleTable(at string, object schema, skip properties) string {
	var out strings.Builder
	row := func(path string, rules apiextensionsv1.ValidationRules) {
		for _, r := range rules {
			fmt.Fprintf(&out, "| `%s` | %s | `%s` |\n", path+r.FieldPath, cell(r.Message), inCode(r.Rule))
		}
	}
	row(at, object.XValidations)
	for _, f := range fieldsOf(at, object, skip) {
		row(f.path, f.schema.XValidations)
		if f.schema.Items != nil {
			row(f.path+"[]", f.schema.Items.Schema.XValidations)
		}
	}
	if out.Len() == 0 {
		return ""
	}
	return "\n| field | message if rejected | condition |\n|---|---|---|\n" + out.String()
}

// cell escapes a text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(inCode(text), "<", "&lt;") }

// inCode escapes code for a cell of a table.
func inCode(text string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text) }

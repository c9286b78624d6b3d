package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// target is the kind that a reference names, as in a rule of Kustomize. The group of the core API is empty.
type target struct{ group, kind string }

// notReferences are the types whose name is not that of an object in the build.
var notReferences = map[reflect.Type]string{
	reflect.TypeFor[v1alpha1.Grant]():              "the name of the grant itself",
	reflect.TypeFor[v1alpha1.PrincipalLDAP]():      "a name of the directory",
	reflect.TypeFor[v1alpha1.PrincipalReference](): "a principal of the key server",
	reflect.TypeFor[v1alpha1.PrincipalRole]():      "a role of the key server",
	reflect.TypeFor[v1alpha1.ConfigMapTarget]():    "the manager makes it, and Pods name it",
	reflect.TypeFor[v1alpha1.PublishedBundle]():    "the manager makes it, and Pods name it",
	reflect.TypeFor[v1alpha1.PublishedConfigMap](): "the manager makes it, and Pods name it",
}

// targetOf returns the kind that a field names. The field is of a type with a name.
func targetOf(field string, of reflect.Type) (target, bool) {
	our, byType := v1alpha1.GroupVersion.Group, map[reflect.Type]string{
		reflect.TypeFor[v1alpha1.KeyServerReference]():       "KeyServer",
		reflect.TypeFor[v1alpha1.PeerReference]():            "KeyServer",
		reflect.TypeFor[v1alpha1.PrincipalObjectReference](): "Principal",
		reflect.TypeFor[v1alpha1.RoleReference]():            "Role",
		reflect.TypeFor[v1alpha1.TrustedServerReference]():   "TrustedServer",
	}
	if kind, ours := byType[of]; ours {
		return target{our, kind}, true
	}
	byField := map[string]string{
		"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret", "secretRef": "Secret", "serviceAccount": "ServiceAccount",
	}
	kind, known := byField[field]
	return target{"", kind}, known
}

// jsonName returns the name of a field in manifests, and whether it may be left out.
func jsonName(f reflect.StructField) (name string, optional bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, strings.Contains(options, "omit")
}

// named reports whether a type has a name, and whether it requires a namespace.
func named(of reflect.Type) (name, namespaced bool) {
	for i := range of.NumField() {
		switch field, optional := jsonName(of.Field(i)); field {
		case "name":
			name = true
		case "namespace":
			namespaced = !optional
		}
	}
	return name, namespaced
}

// references calls found with the path and the type of each field below a type that has a
// name or ends in "Ref".
func references(of reflect.Type, path string, found func(path, field string, of reflect.Type)) {
	for i := range of.NumField() {
		f := of.Field(i)
		field, _ := jsonName(f)
		below, at := f.Type, path+"/"+field
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice || below.Kind() == reflect.Map {
			below = below.Elem()
		}
		if field == "" {
			at = path // embedded
		}
		ours := below.Kind() == reflect.Struct && below.PkgPath() == reflect.TypeFor[v1alpha1.Key]().PkgPath()
		name := false
		if ours {
			name, _ = named(below)
		}
		if name || strings.HasSuffix(field, "Ref") {
			found(at, field, below)
		}
		if ours {
			references(below, at, found)
		}
	}
}

// Each reference of each kind has a rule, so that Kustomize rewrites it, and each rule is
// about a reference that exists.
func TestReferencesHaveTheirRules(t *testing.T) {
	var want []string
	for _, k := range v1alpha1.Kinds {
		spec, found := reflect.TypeOf(k.New()).Elem().FieldByName("Spec")
		if !found {
			t.Fatalf("%s has no spec", k.Name)
		}
		references(spec.Type, "spec", func(path, field string, of reflect.Type) {
			if _, not := notReferences[of]; not {
				return
			}
			to, known := targetOf(field, of)
			if !known {
				t.Errorf("%s %s: a reference of an unknown kind, or none; add %s to targetOf or to notReferences", k.Name, path, of)
				return
			}
			if _, namespaced := named(of); !namespaced {
				path += "/name"
			}
			want = append(want, fmt.Sprintf("%s %s names %s.%s", k.Name, path, to.kind, to.group))
		})
	}
	type rule struct {
		Group, Version, Kind string
		FieldSpecs           []struct{ Group, Version, Kind, Path string }
	}
	var got []string
	for _, r := range document[struct{ NameReference []rule }](t, 0, "kustomize", "name_references.yaml").NameReference {
		if version := map[bool]string{true: "v1"}[r.Group == ""]; r.Version != version {
			t.Errorf("%s.%s: version %q, want %q", r.Kind, r.Group, r.Version, version)
		}
		for _, field := range r.FieldSpecs {
			if field.Group != v1alpha1.GroupVersion.Group || field.Version != "" {
				t.Errorf("%s: group %q and version %q, want our group in any version", field.Path, field.Group, field.Version)
			}
			kinds := []string{field.Kind}
			if field.Kind == "" {
				kinds = nil
				for _, k := range v1alpha1.Kinds {
					if k.Managed() {
						kinds = append(kinds, k.Name)
					}
				}
			}
			for _, kind := range kinds {
				got = append(got, fmt.Sprintf("%s %s names %s.%s", kind, field.Path, r.Kind, r.Group))
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) < 20 {
		t.Errorf("only %d references were found", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config/kustomize/name_references.yaml (-types +rules):\n%s", diff)
	}
}

package main

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// reference is a name reference rule of Kustomize: a kind, and the fields that contain the names of its objects. The
// group of the core API is empty.
type reference struct {
	Group, Kind string
	Fields      []field
}

type field struct{ Kind, Path string }

// notReferences contains the types whose name is not the name of an object in the build, each with the reason.
var notReferences = map[reflect.Type]string{
	reflect.TypeFor[v1beta1.Grant]():              "the name of the grant itself",
	reflect.TypeFor[v1beta1.KeyServerReference](): "one rule covers all kinds",
	reflect.TypeFor[v1beta1.PrincipalLDAP]():      "a name of the directory",
	reflect.TypeFor[v1beta1.PrincipalReference](): "a principal of the key server",
	reflect.TypeFor[v1beta1.PrincipalRole]():      "a role of the key server",
	reflect.TypeFor[v1beta1.ConfigMapTarget]():    "the manager makes it, and Pods name it",
	reflect.TypeFor[v1beta1.PublishedBundle]():    "the manager makes it, and Pods name it",
	reflect.TypeFor[v1beta1.PublishedConfigMap](): "the manager makes it, and Pods name it",
}

// byType contains the types of references to this project's kinds, except for types that are named after their kind,
// such as RoleReference.
var byType = map[reflect.Type]string{
	reflect.TypeFor[v1beta1.PeerReference]():            "KeyServer",
	reflect.TypeFor[v1beta1.PrincipalObjectReference](): "Principal",
}

// byField contains the kinds of the core API by the names of the fields that refer to them.
var byField = map[string]string{
	"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret", "secretRef": "Secret", "serviceAccount": "ServiceAccount",
}

// referencesOf returns the rules for the specs of the kinds. Rules for the core API are first.
func referencesOf(kinds []v1beta1.Kind) ([]reference, error) {
	var found []reference
	for _, k := range kinds {
		spec, has := reflect.TypeOf(k.New()).Elem().FieldByName("Spec")
		if !has {
			return nil, fmt.Errorf("%s has no spec", k.Name)
		}
		err := fields(spec.Type, "spec", func(path, name string, of reflect.Type) error {
			to, err := targetOf(name, of)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			at := slices.IndexFunc(found, func(r reference) bool { return r.Group == to.Group && r.Kind == to.Kind })
			if at < 0 {
				at, found = len(found), append(found, to)
			}
			found[at].Fields = append(found[at].Fields, field{k.Name, path})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s %w", k.Name, err)
		}
	}
	for _, r := range found {
		slices.SortFunc(r.Fields, func(a, b field) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path)) })
	}
	slices.SortFunc(found, func(a, b reference) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
	return found, nil
}

// targetOf returns the kind that a field with the given name and type refers to.
func targetOf(name string, of reflect.Type) (reference, error) {
	kind, ours := byType[of]
	if !ours {
		kind, _ = strings.CutSuffix(of.Name(), "Reference")
		_, ours = v1beta1.KindNamed(kind)
	}
	if ours {
		return reference{Group: v1beta1.GroupVersion.Group, Kind: kind}, nil
	}
	kind, core := byField[name]
	if !core {
		return reference{}, fmt.Errorf("a reference of an unknown kind, or none; add %s to byType, byField or notReferences in hack/kinds", of)
	}
	return reference{Kind: kind}, nil
}

// fields calls found for each field of a struct that refers to an object: its type has a field name, or the name of the
// field ends in "Ref". path ends in /name, unless the reference requires a namespace.
func fields(of reflect.Type, path string, found func(path, name string, of reflect.Type) error) error {
	for i := range of.NumField() {
		f := of.Field(i)
		name := jsonName(f)
		below, at := f.Type, path+"/"+name
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice || below.Kind() == reflect.Map {
			below = below.Elem()
		}
		if name == "" {
			at = path // an embedded struct
		}
		if below.Kind() != reflect.Struct || below.PkgPath() != reflect.TypeFor[v1beta1.Key]().PkgPath() {
			if strings.HasSuffix(name, "Ref") {
				return fmt.Errorf("%s: a reference whose type is not in api/v1beta1", at)
			}
			continue
		}
		hasName, namespaced := named(below)
		if _, not := notReferences[below]; !not && (hasName || strings.HasSuffix(name, "Ref")) {
			end := at + "/name"
			if namespaced {
				end = at
			}
			if err := found(end, name, below); err != nil {
				return err
			}
		}
		if err := fields(below, at, found); err != nil {
			return err
		}
	}
	return nil
}

// named reports whether a struct has a field name, and whether it requires a namespace. An optional one is a pointer.
func named(of reflect.Type) (name, namespaced bool) {
	for i := range of.NumField() {
		switch f := of.Field(i); jsonName(f) {
		case "name":
			name = true
		case "namespace":
			namespaced = f.Type.Kind() != reflect.Pointer
		}
	}
	return name, namespaced
}

// jsonName returns the name of a field in manifests.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

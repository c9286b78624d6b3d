package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// The manifests and rules cover all of v1beta1.Kinds.

// document reads one document of a file.
func document[T any](t *testing.T, at int, path ...string) (into T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	if at >= len(documents) {
		t.Fatalf("%s has %d documents", filepath.Join(path...), len(documents))
	}
	if err := yaml.Unmarshal([]byte(documents[at]), &into); err != nil {
		t.Fatal(err)
	}
	return into
}

type kustomization struct {
	Resources []string `json:"resources"`
}

// resources returns the names of resources as roles use them.
func resources(of func(v1beta1.Kind) bool, suffix string) (names []string) {
	for _, k := range v1beta1.Kinds {
		if of(k) {
			names = append(names, k.Resource+suffix)
		}
	}
	slices.Sort(names)
	return names
}

func every(v1beta1.Kind) bool         { return true }
func keyServer(k v1beta1.Kind) bool   { return !k.Managed() }
func managedKind(k v1beta1.Kind) bool { return k.Managed() }

func TestEveryKindHasItsDefinition(t *testing.T) {
	var want []string
	for _, k := range v1beta1.Kinds {
		file := fmt.Sprintf("bases/%s_%s.yaml", v1beta1.GroupVersion.Group, k.Resource)
		want = append(want, file)
		text, err := bases.ReadFile("crd/" + file)
		if err != nil {
			t.Errorf("%s: %v", k.Name, err)
			continue
		}
		var crd struct {
			Metadata struct{ Name string }
			Spec     struct {
				Scope string
				Names struct{ Kind, Plural, ListKind string }
			}
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		scope := "Namespaced"
		if !k.Managed() {
			scope = "Cluster"
		}
		names := crd.Spec.Names
		got := []string{crd.Metadata.Name, names.Kind, names.Plural, names.ListKind, crd.Spec.Scope}
		if diff := cmp.Diff([]string{k.CRD(), k.Name, k.Resource, k.Name + "List", scope}, got); diff != "" {
			t.Errorf("%s: %s", k.Name, diff)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, document[kustomization](t, 0, "crd", "kustomization.yaml").Resources); diff != "" {
		t.Errorf("crd/kustomization.yaml (-Kinds +file):\n%s", diff)
	}
	files, err := filepath.Glob("crd/bases/*.yaml")
	if err != nil || len(files) != len(want) {
		t.Errorf("%d kinds, and the definitions %v, %v", len(want), files, err)
	}
}

func TestEveryKindHasASample(t *testing.T) {
	declared := map[string]bool{"KeyServer": true} // its URL differs in each installation
	kind := regexp.MustCompile(`(?m)^kind: (\w+)$`)
	for _, directory := range []string{"samples", "samples/federation"} {
		files, err := filepath.Glob(directory + "/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, file := range files {
			if filepath.Base(file) == "kustomization.yaml" {
				continue
			}
			names = append(names, filepath.Base(file))
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range kind.FindAllStringSubmatch(string(text), -1) {
				declared[m[1]] = true
			}
		}
		listed := document[kustomization](t, 0, directory, "kustomization.yaml").Resources
		slices.Sort(listed)
		if diff := cmp.Diff(names, listed); diff != "" {
			t.Errorf("%s/kustomization.yaml (-files +listed):\n%s", directory, diff)
		}
	}
	for _, k := range v1beta1.Kinds {
		if !declared[k.Name] {
			t.Errorf("no sample of %s", k.Name)
		}
	}
}

// grants returns the resources of a group that rules grant exactly these verbs on.
func grants(rules []rbacv1.PolicyRule, group string, verbs ...string) (names []string) {
	for _, r := range rules {
		have := slices.Clone(r.Verbs)
		slices.Sort(have)
		slices.Sort(verbs)
		if slices.Contains(r.APIGroups, group) && slices.Equal(have, verbs) {
			names = append(names, r.Resources...)
			names = append(names, r.ResourceNames...)
		}
	}
	slices.Sort(names)
	return names
}

func TestEveryKindHasItsRights(t *testing.T) {
	group := v1beta1.GroupVersion.Group
	manager := document[rbacv1.ClusterRole](t, 0, "rbac", "role.yaml").Rules
	role := func(at int) []rbacv1.PolicyRule {
		return document[rbacv1.ClusterRole](t, at, "rbac", "aggregated_roles.yaml").Rules
	}
	change := []string{"create", "update", "patch", "delete", "deletecollection"}
	for what, tc := range map[string]struct{ got, want []string }{
		"the manager reads and marks objects": {grants(manager, group, "get", "list", "watch", "patch"), resources(managedKind, "")},
		"the manager creates a KeyServer":     {grants(manager, group, "get", "list", "watch", "patch", "create"), resources(keyServer, "")},
		"the manager writes status":           {grants(manager, group, "patch"), resources(every, "/status")},
		"the manager reads definitions": {
			grants(manager, "apiextensions.k8s.io", "get"), append(resources(every, "."+group), "customresourcedefinitions"),
		},
		"view reads objects": {grants(role(0), group, "get", "list", "watch"), resources(every, "")},
		"view reads status":  {grants(role(0), group, "get"), resources(every, "/status")},
		"edit":               {grants(role(1), group, change...), resources(managedKind, "")},
		"admin":              {grants(role(2), group, change...), resources(keyServer, "")},
	} {
		slices.Sort(tc.want)
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-Kinds +file):\n%s", what, diff)
		}
	}
}

// Both versions have the same schema, so that the API server converts without a webhook. The present one is stored.
func TestBothVersionsAreTheSame(t *testing.T) {
	crds, err := CRDs()
	if err != nil || len(crds) != len(v1beta1.Kinds) {
		t.Fatalf("%d definitions: %v", len(crds), err)
	}
	for _, crd := range crds {
		if c := crd.Spec.Conversion; c != nil && c.Strategy != apiextensionsv1.NoneConverter {
			t.Errorf("%s: conversion by %s", crd.Name, c.Strategy)
		}
		if len(crd.Spec.Versions) != 2 {
			t.Errorf("%s: %d versions", crd.Name, len(crd.Spec.Versions))
			continue
		}
		present, former := crd.Spec.Versions[0], crd.Spec.Versions[1]
		if present.Name != v1beta1.GroupVersion.Version || !present.Served || !present.Storage || present.Deprecated {
			t.Errorf("%s: the first version must be %s, served and stored", crd.Name, v1beta1.GroupVersion.Version)
		}
		warning := fmt.Sprintf("%s %s is deprecated; use %s", v1beta1.Deprecated, crd.Spec.Names.Kind, v1beta1.GroupVersion)
		if former.Name != v1beta1.Deprecated.Version || !former.Served || former.Storage || !former.Deprecated || former.DeprecationWarning == nil || *former.DeprecationWarning != warning {
			t.Errorf("%s: the second version must be %s, served, and deprecated with the warning %q", crd.Name, v1beta1.Deprecated.Version, warning)
		}
		former.Name, former.Storage, former.Deprecated, former.DeprecationWarning = present.Name, true, false, nil
		if diff := cmp.Diff(present, former); diff != "" {
			t.Errorf("%s (-%s +%s):\n%s", crd.Name, v1beta1.GroupVersion.Version, v1beta1.Deprecated.Version, diff)
		}
	}
}

// The schema of grants is hand-written, too: it has every kind that declares something, and every
// duty of the key server.
func TestEveryKindAndDutyCanBeGranted(t *testing.T) {
	type node struct {
		Properties map[string]json.RawMessage
		Items      *struct{ Enum []string }
	}
	var at node
	crd := document[struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema node }
			}
		}
	}](t, 0, "crd", "bases", "trust.keyserver.dev_keyservers.yaml")
	at = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, field := range []string{"spec", "grants", "kinds"} {
		raw := at.Properties[field]
		if field == "grants" {
			var list struct{ Items json.RawMessage }
			if err := json.Unmarshal(raw, &list); err != nil {
				t.Fatal(err)
			}
			raw = list.Items
		}
		at = node{}
		if err := json.Unmarshal(raw, &at); err != nil {
			t.Fatal(err)
		}
	}
	all := v1beta1.GrantAll("all", v1beta1.GrantedNamespaces{})
	var want, given []string
	for _, k := range all.Kinds {
		want = append(want, string(k))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, at.Items.Enum); diff != "" {
		t.Errorf("kinds of a grant (-Kinds +file):\n%s", diff)
	}
	text, err := bases.ReadFile("crd/bases/trust.keyserver.dev_keyservers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	unfolded := strings.Join(strings.Fields(string(text)), " ")
	for _, op := range keyserver.Operations {
		given = append(given, "duty:"+string(op.Duty))
		if !strings.Contains(unfolded, "'duty:"+string(op.Duty)+"'") {
			t.Errorf("the definition refuses the duty %q", op.Duty)
		}
	}
	slices.Sort(given)
	slices.Sort(all.Operations)
	if diff := cmp.Diff(slices.Compact(given), all.Operations); diff != "" {
		t.Errorf("a grant of everything (-duties +given):\n%s", diff)
	}
}

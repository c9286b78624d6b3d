package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestValuesAndSchemaAgree checks that a value must be in values and schema and have a description.
func TestValuesAndSchemaAgree(t *testing.T) {
	for name, tc := range map[string]struct{ values, schema, says string }{
		"unknown":     {"a: {b: 1}", `{"properties": {"a": {"properties": {"c": {"description": "x"}}}}}`, "values.yaml has a.b, which values.schema.json does not know"},
		"no default":  {"a: {}", `{"properties": {"a": {"properties": {"c": {"description": "x"}}}}}`, "values.schema.json has a.c, which values.yaml does not name"},
		"undescribed": {"a: 1", `{"properties": {"a": {"type": "integer"}}}`, "values.schema.json does not describe a"},
		"twice":       {"a: 1\na: 2", `{"properties": {"a": {"description": "x"}}}`, "values.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			for file, text := range map[string]string{"values.yaml": tc.values, "values.schema.json": tc.schema} {
				if err := os.WriteFile(filepath.Join(directory, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := readme(directory); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

// TestEverySourceIsThere checks that a missing kustomization is an error and is not omitted.
func TestEverySourceIsThere(t *testing.T) {
	config := t.TempDir()
	if err := os.CopyFS(config, os.DirFS("../../config")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(config, "access")); err != nil {
		t.Fatal(err)
	}
	if _, err := build(config); err == nil || !strings.Contains(err.Error(), "build config/access") {
		t.Errorf("got %v", err)
	}
}

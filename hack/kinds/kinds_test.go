package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

func TestFilesAreUpToDate(t *testing.T) {
	const root = "../.."
	files, err := render(root)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is out of date (%v); run make generate", path, err)
		}
	}
}

func TestReferencesOfAllKindsAreFound(t *testing.T) {
	found, err := referencesOf(v1beta1.Kinds)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range found {
		n += len(r.Fields)
	}
	if n < 15 {
		t.Errorf("only %d references: %v", n, found)
	}
}

// invented is a kind with a reference that is in no table.
type invented struct {
	metav1.ObjectMeta
	runtime.Object
	Spec struct {
		NoteRef struct{ Name string } `json:"noteRef"`
	} `json:"spec"`
}

func TestUnknownReferenceIsAnError(t *testing.T) {
	kind := v1beta1.Kind{Name: "Invented", New: func() v1beta1.Object { return &invented{} }}
	if found, err := referencesOf([]v1beta1.Kind{kind}); err == nil || !strings.Contains(err.Error(), "Invented spec") {
		t.Errorf("%v, %v", found, err)
	}
	if to, err := targetOf("noteRef", reflect.TypeFor[v1beta1.PrincipalRole]()); err == nil {
		t.Errorf("%v", to)
	}
}

package controllers

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/internal/managed"
)

// Messages that list objects of several kinds, and plans, have this order.
func TestKindsAreRegisteredInTheOrderOfTheirNeeds(t *testing.T) {
	var kinds []managed.Kind
	for _, k := range v1alpha1.Kinds {
		for _, a := range adapters {
			if a.kind().Name == k.Name {
				kinds = append(kinds, a.kind())
			}
		}
	}
	var got []string
	want := []string{"TrustedCA", "Role", "TrustedServer", "Principal", "PrincipalTrust", "ACLTemplate"}
	for _, k := range inOrder(kinds) {
		if slices.Contains(want, k.Name) { // a kind that comes later finds its place
			got = append(got, k.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestKindsThatWaitForEachOtherHaveAnOrder(t *testing.T) {
	var got []string
	for _, k := range inOrder([]managed.Kind{
		{Name: "a", Feed: "a", Awaits: []string{"b", "elsewhere"}},
		{Name: "b", Feed: "b", Awaits: []string{"a", "b"}},
		{Name: "c", Feed: "c"},
	}) {
		got = append(got, k.Name)
	}
	if diff := cmp.Diff([]string{"c", "a", "b"}, got); diff != "" {
		t.Error(diff)
	}
}

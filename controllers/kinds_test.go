package controllers

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// TestKindsAreRegisteredInTheOrderOfTheirNeeds checks the order of kinds in plans and messages.
func TestKindsAreRegisteredInTheOrderOfTheirNeeds(t *testing.T) {
	var kinds []reconcile.Kind
	for _, k := range v1beta1.Kinds {
		for _, a := range adapters {
			if a.kind().Name == k.Name {
				kinds = append(kinds, a.kind())
			}
		}
	}
	var got []string
	want := []string{"TrustedCA", "Role", "TrustedServer", "Principal", "PrincipalTrust", "ACLTemplate", "Key"}
	for _, k := range inOrder(kinds) {
		if slices.Contains(want, k.Name) { // a new kind may have any position
			got = append(got, k.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestKindsThatWaitForEachOtherHaveAnOrder(t *testing.T) {
	var got []string
	for _, k := range inOrder([]reconcile.Kind{
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

// TestMetricsOfKindsBeginAtZero checks that the metrics of each kind exist before their first event. Otherwise
// Prometheus cannot see the first increase.
func TestMetricsOfKindsBeginAtZero(t *testing.T) {
	kube := &simCluster{w: newWorld(1, false)}
	if err := registerKinds(Options{}.registry(reconcile.Cluster{Client: kube, Live: kube}, kube, logr.Discard())); err != nil {
		t.Fatal(err)
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string][]string{} // kinds by metric name
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "kind" {
					kinds[family.GetName()] = append(kinds[family.GetName()], label.GetValue())
				}
			}
		}
	}
	for _, metric := range []string{"keyserver_time_to_verified_seconds", "keyserver_drift_found_total", "keyserver_drift_repaired_total"} {
		for _, k := range v1beta1.Kinds {
			if k.Managed() && !slices.Contains(kinds[metric], k.Name) {
				t.Errorf("there is no series %s{kind=%q}", metric, k.Name)
			}
		}
	}
}

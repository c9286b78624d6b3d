package install

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// "kubectl delete -k" of an installation deletes no object that contains keys: neither the volume claim nor the
// namespace, whose deletion would delete everything in it.
func TestDeletingAnInstallationKeepsItsKeys(t *testing.T) {
	for _, name := range kustomizations(t) {
		if name == volume || name == namespaceAlone {
			continue
		}
		for _, o := range build(t, name) {
			if slices.Contains([]string{"Namespace", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Secret"}, o.GetKind()) {
				t.Errorf("%s has %s", name, describe(o))
			}
		}
	}
}

// Volumes that an installation mounts but does not contain are applied earlier than the installation.
func TestTheVolumeIsAppliedBefore(t *testing.T) {
	before := build(t, volume)
	for _, o := range before {
		for annotation, want := range map[string]string{
			"argocd.argoproj.io/sync-options": "Prune=false,Delete=false", "kustomize.toolkit.fluxcd.io/prune": "disabled",
		} {
			if got := o.GetAnnotations()[annotation]; got != want {
				t.Errorf("%s has the annotation %s: %q", describe(o), annotation, got)
			}
		}
	}
	if first := before[0]; first.GetKind() != "Namespace" || first.GetName() != namespace || len(build(t, namespaceAlone)) != 1 {
		t.Errorf("the first is %s", describe(first))
	}
	for _, name := range installations {
		for _, d := range typed[appsv1.Deployment](t, build(t, name), "Deployment") {
			for _, v := range d.Spec.Template.Spec.Volumes {
				if claim := v.PersistentVolumeClaim; claim != nil {
					pick(t, before, "PersistentVolumeClaim", claim.ClaimName)
				}
			}
		}
	}
}

package install

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/argocd"
)

// The change of docs/install.md to the ConfigMap of Argo CD keeps its other settings.
func TestArgoCDKeepsItsSettings(t *testing.T) {
	at := &corev1.Namespace{}
	at.Name = "argocd"
	rig.Must(t, kube.Create(t.Context(), at))
	own := argocd.ConfigMap(t)
	scripts := own.Data
	own.Namespace, own.Labels, own.Data = at.Name, map[string]string{"own": "yes"}, map[string]string{"url": "https://argocd.example"}
	rig.Must(t, kube.Create(t.Context(), own))

	part := argocd.ConfigMap(t)
	part.Namespace = at.Name
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	rig.Must(t, err)
	rig.Must(t, kube.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content}), client.FieldOwner("keyserver-health")))
	rig.Must(t, kube.Get(t.Context(), client.ObjectKeyFromObject(own), own))
	if own.Data["url"] == "" || own.Labels["own"] == "" || own.Labels["app.kubernetes.io/part-of"] != "argocd" {
		t.Errorf("the ConfigMap is %v, %v", own.Labels, own.Data)
	}
	for key, script := range scripts {
		if own.Data[key] != script {
			t.Errorf("%s is %q", key, own.Data[key])
		}
	}
}

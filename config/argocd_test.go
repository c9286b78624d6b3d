package config

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/argocd"
)

// byReason is the health of an object by the reason of its Ready condition. The tests fail for a
// reason that is missing here.
var byReason = map[v1beta1.Reason]string{
	v1beta1.ReasonVerified:             argocd.Healthy,
	v1beta1.ReasonProgressing:          argocd.Progressing,
	v1beta1.ReasonKeyServerUnavailable: argocd.Progressing,
	v1beta1.ReasonAccessDenied:         argocd.Degraded,
	v1beta1.ReasonNotVerified:          argocd.Progressing,
	v1beta1.ReasonInvalidSpec:          argocd.Degraded,
	v1beta1.ReasonDependencyNotReady:   argocd.Progressing,
	v1beta1.ReasonConflict:             argocd.Degraded,
	v1beta1.ReasonUnsupported:          argocd.Degraded,
	v1beta1.ReasonDrifted:              argocd.Degraded,
	v1beta1.ReasonInUse:                argocd.Progressing,
	v1beta1.ReasonPaused:               argocd.Suspended,
	v1beta1.ReasonNotYetValid:          argocd.Progressing,
	v1beta1.ReasonExpired:              argocd.Degraded,
	v1beta1.ReasonExpiring:             argocd.Healthy,
	v1beta1.ReasonFollowing:            argocd.Healthy,
}

// generation is the generation of the objects in these tests.
const generation = 3

var noon = metav1.Unix(1_700_000_000, 0)

// observed returns an object as it is in the API server after the manager has written its conditions.
func observed(t *testing.T, k v1beta1.Kind, write func(*[]metav1.Condition)) *unstructured.Unstructured {
	t.Helper()
	obj := k.New()
	obj.SetName("one")
	obj.SetGeneration(generation)
	obj.GetObjectKind().SetGroupVersionKind(v1beta1.GroupVersion.WithKind(k.Name))
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	rig.Must(t, err)
	var conditions []metav1.Condition
	write(&conditions)
	var written []any
	for _, c := range conditions {
		one, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
		rig.Must(t, err)
		written = append(written, one)
	}
	delete(content, "status")
	if written != nil {
		rig.Must(t, unstructured.SetNestedSlice(content, written, "status", "conditions"))
	}
	return &unstructured.Unstructured{Object: content}
}

// concluded writes the conditions as the manager does for a reason.
func concluded(reason v1beta1.Reason, at int64) func(*[]metav1.Condition) {
	return func(conditions *[]metav1.Condition) {
		if reason == v1beta1.ReasonPaused {
			status.Pause(conditions, at, noon, string(reason))
			return
		}
		status.Conclude(conditions, at, noon, status.Conclusion{Reason: reason, Message: string(reason)})
	}
}

func TestArgoCDJudgesEveryReasonOfEveryKind(t *testing.T) {
	scripts := argocd.ConfigMap(t)
	for _, k := range v1beta1.Kinds {
		for _, entry := range v1beta1.Reasons {
			want, thought := byReason[entry.Reason]
			if !thought {
				t.Errorf("what is the health of an object whose reason is %s?", entry.Reason)
				continue
			}
			got := argocd.Judge(t, scripts, observed(t, k, concluded(entry.Reason, generation)))
			if diff := cmp.Diff(argocd.Health{Status: want, Message: string(entry.Reason)}, got); diff != "" {
				t.Errorf("%s, %s: %s", k.Name, entry.Reason, diff)
			}
		}
	}
	if len(byReason) != len(v1beta1.Reasons) {
		t.Errorf("%d reasons, and %d in the catalogue", len(byReason), len(v1beta1.Reasons))
	}
}

func TestArgoCDJudgesEveryState(t *testing.T) {
	const (
		unseen   = "the manager has not processed the object yet"
		outdated = "the manager has not processed the last change yet"
	)
	verified := concluded(v1beta1.ReasonVerified, generation)
	for name, tc := range map[string]struct {
		write    func(*[]metav1.Condition)
		deleting bool
		want     argocd.Health
	}{
		"no status":          {func(*[]metav1.Condition) {}, false, argocd.Health{Status: argocd.Progressing, Message: unseen}},
		"no status, deleted": {func(*[]metav1.Condition) {}, true, argocd.Health{Status: argocd.Progressing, Message: unseen}},
		"Ready not among the conditions": {func(c *[]metav1.Condition) {
			status.SetCondition(c, v1beta1.ConditionChangeFeed, metav1.ConditionTrue, generation, noon, status.Conclusion{Reason: v1beta1.ReasonFollowing})
		}, false, argocd.Health{Status: argocd.Progressing, Message: unseen}},
		"Ready before the last change":   {concluded(v1beta1.ReasonVerified, generation-1), false, argocd.Health{Status: argocd.Progressing, Message: outdated}},
		"Stalled before the last change": {concluded(v1beta1.ReasonConflict, generation-1), false, argocd.Health{Status: argocd.Progressing, Message: outdated}},
		"paused after the last change": {func(c *[]metav1.Condition) {
			concluded(v1beta1.ReasonVerified, generation-1)(c)
			status.Pause(c, generation, noon, "paused")
		}, false, argocd.Health{Status: argocd.Suspended, Message: "paused"}},
		"no more paused": {func(c *[]metav1.Condition) {
			status.Pause(c, generation, noon, "paused")
			verified(c)
		}, false, argocd.Health{Status: argocd.Healthy, Message: "Verified"}},
		"failed again and again": {func(c *[]metav1.Condition) {
			status.Conclude(c, generation, noon, status.Conclusion{Reason: v1beta1.ReasonNotVerified, Message: "m", Exhausted: true})
		}, false, argocd.Health{Status: argocd.Degraded, Message: "m"}},
		"expires": {func(c *[]metav1.Condition) {
			verified(c)
			status.SetCondition(c, v1beta1.ConditionExpiring, metav1.ConditionTrue, generation, noon, status.Conclusion{Reason: v1beta1.ReasonExpiring})
		}, false, argocd.Health{Status: argocd.Healthy, Message: "Verified"}},
		"a KeyServer without a feed, and without Verified": {func(c *[]metav1.Condition) {
			verified(c)
			meta.RemoveStatusCondition(c, v1beta1.ConditionVerified)
			status.SetCondition(c, v1beta1.ConditionChangeFeed, metav1.ConditionFalse, generation, noon, status.Conclusion{Reason: v1beta1.ReasonUnsupported})
		}, false, argocd.Health{Status: argocd.Healthy, Message: "Verified"}},
		"deleted while ready": {verified, true, argocd.Health{Status: argocd.Progressing, Message: "Verified"}},
		"deletion that waits": {concluded(v1beta1.ReasonInUse, generation), true, argocd.Health{Status: argocd.Progressing, Message: "InUse"}},
		"deletion refused":    {concluded(v1beta1.ReasonAccessDenied, generation), true, argocd.Health{Status: argocd.Progressing, Message: "AccessDenied"}},
	} {
		t.Run(name, func(t *testing.T) {
			scripts := argocd.ConfigMap(t)
			for _, k := range v1beta1.Kinds {
				obj := observed(t, k, tc.write)
				if tc.deleting {
					obj.SetDeletionTimestamp(&noon)
				}
				if diff := cmp.Diff(tc.want, argocd.Judge(t, scripts, obj)); diff != "" {
					t.Errorf("%s: %s", k.Name, diff)
				}
			}
		})
	}
}

// The component keeps the other settings of an Argo CD ConfigMap in a kustomization.
func TestArgoCDConfigMapIsPatched(t *testing.T) {
	files := filesys.MakeFsInMemory()
	for path, text := range map[string]string{
		"argocd/kustomization.yaml": string(source(t, "argocd/kustomization.yaml")),
		"argocd/argocd-cm.yaml":     string(source(t, "argocd/argocd-cm.yaml")),
		"own/kustomization.yaml":    "namespace: argocd\nresources: [cm.yaml]\ncomponents: [../argocd]\n",
		"own/cm.yaml":               "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {url: https://argocd.example}\n",
	} {
		rig.Must(t, files.WriteFile(path, []byte(text)))
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "own")
	rig.Must(t, err)
	text, err := built.AsYaml()
	rig.Must(t, err)
	got := corev1.ConfigMap{}
	rig.Must(t, yaml.UnmarshalStrict(text, &got))
	want := argocd.ConfigMap(t)
	if len(want.Data) != len(v1beta1.Kinds) {
		t.Errorf("%d keys for %d kinds", len(want.Data), len(v1beta1.Kinds))
	}
	want.Data["url"] = "https://argocd.example"
	if diff := cmp.Diff(want.Data, got.Data); diff != "" {
		t.Errorf("(-want +built):\n%s", diff)
	}
	if got.Namespace != "argocd" {
		t.Errorf("it is in %q", got.Namespace)
	}
}

func source(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	rig.Must(t, err)
	return text
}

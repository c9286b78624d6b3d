package status

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// TestAStatusThatWasNotConcludedIsLookedAt checks that only a status that this manager did not record requires a pass.
// A reaction to its own writes would never end.
func TestAStatusThatWasNotConcludedIsLookedAt(t *testing.T) {
	population := NewPopulation("Role")
	concerns := Concerns(population)
	role := func(name string, generation int64, reason v1beta1.Reason) *v1beta1.Role {
		obj := &v1beta1.Role{}
		obj.Name, obj.Generation = name, generation
		if reason != "" {
			Conclude(&obj.Status.Conditions, generation, metav1.Now(), Conclusion{Reason: reason})
		}
		return obj
	}
	population.Move(types.NamespacedName{Name: "a"}, string(v1beta1.ReasonVerified))
	for name, c := range map[string]struct {
		old, now *v1beta1.Role
		want     bool
	}{
		"Declared":        {role("a", 1, v1beta1.ReasonVerified), role("a", 2, v1beta1.ReasonVerified), true},
		"LostAndFound":    {role("a", 1, v1beta1.ReasonVerified), role("a", 1, v1beta1.ReasonKeyServerUnavailable), true},
		"OwnWrite":        {role("a", 1, v1beta1.ReasonKeyServerUnavailable), role("a", 1, v1beta1.ReasonVerified), false},
		"NothingSaid":     {role("a", 1, ""), role("a", 1, ""), false},
		"NothingKnown":    {role("b", 1, ""), role("b", 1, v1beta1.ReasonKeyServerUnavailable), false},
		"ConcludedBefore": {role("a", 1, v1beta1.ReasonVerified), role("a", 1, v1beta1.ReasonVerified), false},
	} {
		if got := concerns.Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.now}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	held := func(obj *v1beta1.Role, finalizers ...string) *v1beta1.Role {
		obj.Finalizers = finalizers
		return obj
	}
	for name, c := range map[string]struct {
		old, now []string
		want     bool
	}{
		"Lost":       {[]string{v1beta1.FinalizerExternal, "example.com/other"}, []string{"example.com/other"}, true},
		"Restored":   {nil, []string{v1beta1.FinalizerExternal}, false},
		"Kept":       {[]string{v1beta1.FinalizerExternal}, []string{v1beta1.FinalizerExternal}, false},
		"SomeOthers": {[]string{"example.com/other"}, nil, false},
	} {
		old, now := held(role("a", 1, v1beta1.ReasonVerified), c.old...), held(role("a", 1, v1beta1.ReasonVerified), c.now...)
		if got := concerns.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != c.want {
			t.Errorf("a finalizer, %s: %v", name, got)
		}
		deleted := metav1.Now()
		old.DeletionTimestamp, now.DeletionTimestamp = &deleted, &deleted
		if concerns.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}) {
			t.Errorf("a finalizer of what is deleted, %s", name)
		}
	}
	ks := &v1beta1.KeyServer{}
	ks.Name = "a"
	Conclude(&ks.Status.Conditions, 1, metav1.Now(), Conclusion{Reason: v1beta1.ReasonKeyServerUnavailable})
	if !concerns.Update(event.UpdateEvent{ObjectOld: ks, ObjectNew: ks}) {
		t.Error("of a KeyServer it is not looked at")
	}
}

package reconcile

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

func TestWhoIsConcernedDoesNotWaitForEverybody(t *testing.T) {
	q := priorityqueue.New[ctrl.Request]("test")
	defer q.ShutDown()
	named := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "a", Name: name} }
	add := func(name string, everybody bool) {
		Enqueue().Generic(t.Context(), event.TypedGenericEvent[Wake]{Object: Wake{named(name), everybody}}, q)
	}
	const many = 1000
	for i := range many {
		add(fmt.Sprintf("resting-%d", i), true)
	}
	add("changed-outside", false)
	add("resting-500", false)                         // concerned after all
	q.Add(ctrl.Request{NamespacedName: named("new")}) // as the watch of its kind does

	first := map[string]bool{}
	for range 3 {
		req, _ := q.Get()
		first[req.Name] = true
		q.Done(req)
	}
	for _, want := range []string{"changed-outside", "resting-500", "new"} {
		if !first[want] {
			t.Errorf("%s waits for those who are woken together; first were %v", want, first)
		}
	}
	if left := q.Len(); left != many-1 {
		t.Errorf("%d are left, want %d", left, many-1)
	}
}

func TestAResyncIsOfLowPriority(t *testing.T) {
	if p := again(defaultResync, defaultResync).Priority; p == nil || *p >= 0 {
		t.Errorf("a resync has the priority %v, that of new objects is 0", p)
	}
	if p := again(defaultResync/2, defaultResync).Priority; p != nil {
		t.Errorf("what is due earlier has the priority %d", *p)
	}
}

// Of statuses the one that was not concluded last asks for a pass, and none of the others:
// a manager that reads back what it writes would have each pass followed by another.
func TestAStatusThatWasNotConcludedIsLookedAt(t *testing.T) {
	population := NewPopulation("Role")
	concerns := Concerns(population)
	role := func(name string, generation int64, reason v1alpha1.Reason) *v1alpha1.Role {
		obj := &v1alpha1.Role{}
		obj.Name, obj.Generation = name, generation
		if reason != "" {
			Conclude(&obj.Status.Conditions, generation, metav1.Now(), Conclusion{Reason: reason})
		}
		return obj
	}
	population.Move(types.NamespacedName{Name: "a"}, string(v1alpha1.ReasonVerified))
	for name, c := range map[string]struct {
		old, now *v1alpha1.Role
		want     bool
	}{
		"Declared":        {role("a", 1, v1alpha1.ReasonVerified), role("a", 2, v1alpha1.ReasonVerified), true},
		"LostAndFound":    {role("a", 1, v1alpha1.ReasonVerified), role("a", 1, v1alpha1.ReasonKeyServerUnavailable), true},
		"OwnWrite":        {role("a", 1, v1alpha1.ReasonKeyServerUnavailable), role("a", 1, v1alpha1.ReasonVerified), false},
		"NothingSaid":     {role("a", 1, ""), role("a", 1, ""), false},
		"NothingKnown":    {role("b", 1, ""), role("b", 1, v1alpha1.ReasonKeyServerUnavailable), false},
		"ConcludedBefore": {role("a", 1, v1alpha1.ReasonVerified), role("a", 1, v1alpha1.ReasonVerified), false},
	} {
		if got := concerns.Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.now}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	held := func(obj *v1alpha1.Role, finalizers ...string) *v1alpha1.Role {
		obj.Finalizers = finalizers
		return obj
	}
	for name, c := range map[string]struct {
		old, now []string
		want     bool
	}{
		"Lost":       {[]string{v1alpha1.FinalizerExternal, "example.com/other"}, []string{"example.com/other"}, true},
		"Restored":   {nil, []string{v1alpha1.FinalizerExternal}, false},
		"Kept":       {[]string{v1alpha1.FinalizerExternal}, []string{v1alpha1.FinalizerExternal}, false},
		"SomeOthers": {[]string{"example.com/other"}, nil, false},
	} {
		old, now := held(role("a", 1, v1alpha1.ReasonVerified), c.old...), held(role("a", 1, v1alpha1.ReasonVerified), c.now...)
		if got := concerns.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != c.want {
			t.Errorf("a finalizer, %s: %v", name, got)
		}
		deleted := metav1.Now()
		old.DeletionTimestamp, now.DeletionTimestamp = &deleted, &deleted
		if concerns.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}) {
			t.Errorf("a finalizer of what is deleted, %s", name)
		}
	}
	ks := &v1alpha1.KeyServer{}
	ks.Name = "a"
	Conclude(&ks.Status.Conditions, 1, metav1.Now(), Conclusion{Reason: v1alpha1.ReasonKeyServerUnavailable})
	if !concerns.Update(event.UpdateEvent{ObjectOld: ks, ObjectNew: ks}) {
		t.Error("of a KeyServer it is not looked at")
	}
}

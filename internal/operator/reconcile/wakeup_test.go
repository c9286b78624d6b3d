package reconcile

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
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
	add("resting-500", false)                         // a single change concerns it, too
	q.Add(ctrl.Request{NamespacedName: named("new")}) // added by the watch of its kind

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

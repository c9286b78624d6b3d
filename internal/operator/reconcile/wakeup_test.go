package reconcile

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
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

// cachedRoles is a cache that contains some roles, and returns all of them for each index.
type cachedRoles struct {
	client.Client
	roles []v1beta1.Role
}

func (c cachedRoles) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list, ok := into.(*v1beta1.RoleList)
	if !ok {
		return fmt.Errorf("a list of %T", into)
	}
	list.Items = c.roles
	return nil
}

// TestAnAwaitedChangeConcernsOnlyUnreadyObjects checks that ready objects do not reconcile after a change that they do
// not wait for.
func TestAnAwaitedChangeConcernsOnlyUnreadyObjects(t *testing.T) {
	r := &reconciler[*v1beta1.Role, struct{}]{
		Cluster: Cluster{Client: cachedRoles{roles: []v1beta1.Role{*roleWith("resting", metav1.ConditionTrue), *roleWith("waiting", metav1.ConditionFalse)}}},
		kind:    Kind{Awaits: []string{"operations"}},
		wake:    make(chan event.TypedGenericEvent[Wake], 2),
	}
	r.api.NewList = func() v1beta1.List { return &v1beta1.RoleList{} }
	r.handleNotice(t.Context(), connection.Notice{KeyServer: "ks", Kind: "operations", IDs: map[string]bool{"1": true}})
	close(r.wake)
	var woken []string
	for w := range r.wake {
		woken = append(woken, w.Object.Object.Name)
	}
	if !slices.Equal(woken, []string{"waiting"}) {
		t.Errorf("the change wakes %v", woken)
	}
}

package controllers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/test/rig/schedules"
)

// TestSchedulesOfDeletions deletes each role on the key server, so that the manager creates it again, and then the
// object during that creation. An object must not be released while the key server has an acknowledged role of the
// object.
func TestSchedulesOfDeletions(t *testing.T) {
	var again atomic.Uint64
	n := schedules.Each(t, 150, func(seed uint64) string {
		found := scheduleOfDeletions(t, seed)
		if found.created > 0 {
			again.Add(1)
		}
		return found.asTest()
	})
	if again.Load() < n/2 {
		t.Errorf("roles were created again in %d of %d schedules only", again.Load(), n)
	}
}

func scheduleOfDeletions(t *testing.T, seed uint64) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed, false)
		w.deletes = true
		w.run(t)
		o = outcome{seed, fmt.Sprintf("scheduleOfDeletions(t, %d)", seed), len(w.known) - w.before, w.readies, w.wrong, w.trace}
	})
	return o
}

// deleteAll deletes the roles and objects while calls fail, and waits until the objects no longer exist.
func (w *simWorld) deleteAll() {
	time.Sleep(peoplePause + time.Second) // without faults, the simulated users stop
	w.mu.Lock()
	w.before = len(w.known)
	w.mu.Unlock()
	w.faulty.Store(true)
	for at := range w.wake {
		d := w.dice.Of("deletion " + at.Name)
		w.all.Go(func() {
			time.Sleep(time.Duration(d.Int64N(int64(time.Second))))
			w.deleteOutside(at)
			time.Sleep(pauseBeforeDeletion(d))
			w.delete(at)
		})
	}
	time.Sleep(faultsLast)
	w.faulty.Store(false)
	w.trace.Say("the faults are over")
	remaining := func() (names []string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for at := range w.wake {
			if w.newest(at) != nil {
				names = append(names, at.Name)
			}
		}
		return names
	}
	for deadline := time.Now().Add(settleTime); len(remaining()) > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Second)
	}
	if names := remaining(); len(names) > 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wrong = append(w.wrong, fmt.Sprintf("%s after the faults, %s are not released", settleTime, strings.Join(names, ", ")))
	}
}

// pauseBeforeDeletion returns a pause: in two of three cases as short as the pass that creates the role again.
func pauseBeforeDeletion(d *rand.Rand) time.Duration {
	most := 50 * time.Millisecond
	if d.IntN(3) == 0 {
		most = 10 * time.Second
	}
	return time.Duration(d.Int64N(int64(most)))
}

// deleteOutside deletes the role of an object on the key server.
func (w *simWorld) deleteOutside(at types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id, err := schema.ParseHexID(w.newest(at).Status.RoleID); err == nil {
		w.trace.Say("people: delete the role of %s on the key server", at.Name)
		w.put(id, nil, "deleted")
	}
}

// delete deletes an object in the cluster.
func (w *simWorld) delete(at types.NamespacedName) {
	lag := w.lag()
	w.trace.Say("people: delete %s", at.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.newest(at).DeepCopy()
	next.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	w.store(next, lag)
}

// release removes an object whose last finalizer was removed. The caller holds mu.
func (w *simWorld) release(at types.NamespacedName, lag time.Duration) {
	w.trace.Say("manager: release %s", at.Name)
	for id, role := range w.roles {
		if w.known[id] && "role-"+strings.TrimPrefix(role.Name, "Role ") == at.Name {
			w.wrong = append(w.wrong, fmt.Sprintf("%s is released, and role %s stays on the key server", at.Name, id))
		}
	}
	seen := time.Now().Add(lag)
	w.versions[at] = append(w.versions[at], version{nil, seen})
	w.all.Go(func() {
		time.Sleep(time.Until(seen))
		w.enqueue(at)
	})
}

// ends reports whether a deleted object has no finalizer of the manager.
func ends(obj *v1beta1.Role) bool {
	return !obj.DeletionTimestamp.IsZero() && !slices.Contains(obj.Finalizers, v1beta1.FinalizerExternal)
}

// markOf is the owner mark of an object.
func markOf(object string) string { return cluster + "/default/Role/" + object }

func (s *simServer) DeleteRole(ctx context.Context, in schema.ByID) (schema.RoleGone, error) {
	return ask(ctx, s.w, "DeleteRole", true, func() (gone schema.RoleGone, err error) {
		if _, there := s.w.roles[in.ID]; !there {
			return gone, refusal(404, "NOT_FOUND")
		}
		s.w.put(in.ID, nil, "deleted")
		return schema.RoleGone{ID: in.ID, Gone: true}, nil
	})
}

func (s *simServer) ReleaseOwner(ctx context.Context, in schema.ReleaseOwnerRequest) (schema.OwnerReleased, error) {
	return ask(ctx, s.w, "ReleaseOwner", true, func() (released schema.OwnerReleased, err error) {
		owner, marked := s.w.marks[in.ID]
		switch {
		case !marked:
			return released, refusal(404, "NOT_FOUND")
		case owner != in.Expect:
			return released, refusal(409, "OWNED")
		}
		delete(s.w.marks, in.ID)
		s.w.tell(connection.MarksFeed(roles.Name), in.ID, "deleted")
		return schema.OwnerReleased{OwnerMark: schema.OwnerMark{Kind: in.Kind, ID: in.ID, Owner: owner}, Gone: true}, nil
	})
}

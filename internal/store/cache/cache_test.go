package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func newTestCache(in *Set) *Cache[int, string] {
	return New[int, string](in, 2, keyserver.ChangeRole)
}

func TestCache(t *testing.T) {
	reads := 0
	reading := func(v string) func() (string, error) {
		return func() (string, error) { reads++; return v, nil }
	}
	c := newTestCache(new(Set))
	if _, err := c.Get(t.Context(), 1, func() (string, error) { return "", errors.New("no") }); err == nil {
		t.Error("a failed read must fail")
	}
	for range 3 {
		if v, _ := c.Get(t.Context(), 1, reading("a")); v != "a" {
			t.Errorf("got %q", v)
		}
	}
	if reads != 1 {
		t.Errorf("%d reads, want 1: a failure must not be kept, a value must", reads)
	}
	c.drop(1)
	if v, _ := c.Get(t.Context(), 1, reading("b")); v != "b" {
		t.Errorf("after a change: got %q", v)
	}
	c.dropAll()
	if v, _ := c.Get(t.Context(), 1, reading("c")); v != "c" {
		t.Errorf("after a reset: got %q", v)
	}
	for k := range 100 {
		if _, err := c.Get(t.Context(), k, reading("x")); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.entries) > 2 {
		t.Errorf("holds %d entries, the bound is 2", len(c.entries))
	}
}

// TestAReadThatAChangeOvertookIsNotKept checks that the result of a read is not cached if a change was announced during
// the read.
func TestAReadThatAChangeOvertookIsNotKept(t *testing.T) {
	c := newTestCache(new(Set))
	v, err := c.Get(t.Context(), 1, func() (string, error) {
		c.drop(1) // the change is committed and announced during the read
		return "old", nil
	})
	if v != "old" || err != nil {
		t.Fatalf("got %q, %v", v, err)
	}
	if v, _ := c.Get(t.Context(), 1, func() (string, error) { return "new", nil }); v != "new" {
		t.Errorf("got %q: what a change overtook was kept", v)
	}
}

// TestMissesShareOneRead checks that concurrent misses of an entry cause only one read of the store.
func TestMissesShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(new(Set))
		c.max = 10
		var reads atomic.Int64
		leave := make(chan struct{})
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				v, err := c.Get(t.Context(), i%4, func() (string, error) {
					reads.Add(1)
					<-leave
					return fmt.Sprint(i % 4), nil
				})
				if v != fmt.Sprint(i%4) || err != nil {
					t.Errorf("got %q, %v for %d", v, err, i%4)
				}
			})
		}
		synctest.Wait()
		close(leave)
		all.Wait()
		if reads.Load() != 4 || len(c.entries) != 4 {
			t.Errorf("%d reads and %d entries, want 4", reads.Load(), len(c.entries))
		}
	})
}

// TestAChangeDuringAReadIsNotLost checks that a Get after a change does not share a read that began before the change.
// The result of the older read is not cached.
func TestAChangeDuringAReadIsNotLost(t *testing.T) {
	for name, change := range map[string][]keyserver.Change{
		"OfTheKind": {{Kind: keyserver.ChangeRole}},
		"Reset":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all Set
				c := newTestCache(&all)
				leave := make(chan struct{})
				var older sync.WaitGroup
				for range 2 {
					older.Go(func() {
						v, err := c.Get(t.Context(), 1, func() (string, error) { <-leave; return "old", nil })
						if v != "old" || err != nil {
							t.Errorf("who asked before: %q, %v", v, err)
						}
					})
				}
				synctest.Wait()
				all.Changed(change)
				for range 2 {
					v, err := c.Get(t.Context(), 1, func() (string, error) { return "new", nil })
					if v != "new" || err != nil {
						t.Errorf("who asks after: %q, %v", v, err)
					}
				}
				close(leave)
				older.Wait()
				if v, _ := c.held(1); v != "new" {
					t.Errorf("the older read left %q behind", v)
				}
			})
		})
	}
}

// TestByID checks that a cache by id reads an entry only once until a change, and returns it without an allocation.
func TestByID(t *testing.T) {
	var all Set
	reads := 0
	c := NewByID(&all, 2, keyserver.ChangeRole, func(_ context.Context, id keyserver.ID) (string, error) {
		reads++
		return id.Hex(), nil
	})
	ctx, id := t.Context(), values.IDFromUint64(1)
	get := func() {
		if v, err := c.Get(ctx, id); v != id.Hex() || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	}
	get()
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Get(ctx, id) }); n > 0 || reads != 1 {
		t.Errorf("%v allocations and %d reads, want none and 1", n, reads)
	}
	all.Changed([]keyserver.Change{{Kind: keyserver.ChangeRole, ID: id}})
	if get(); reads != 2 {
		t.Errorf("%d reads after a change, want 2", reads)
	}
}

// TestFill checks that Fill does not read cached entries again, and does not cache entries that a change made stale
// during the read.
func TestFill(t *testing.T) {
	var all Set
	c := newTestCache(&all)
	var asked []int
	fill := func(during func(), keys ...int) error {
		return c.Fill(keys, func(missing []int) (map[int]string, error) {
			asked = missing
			during()
			return map[int]string{missing[0]: "read"}, nil
		})
	}
	kept := func(k int) bool { _, ok := c.held(k); return ok }
	if err := c.Fill([]int{1}, func([]int) (map[int]string, error) { return map[int]string{1: "x"}, errors.New("no") }); err == nil || kept(1) {
		t.Errorf("a failed read: %v, kept %v", err, kept(1))
	}
	if err := fill(func() { all.Changed([]keyserver.Change{{Kind: keyserver.ChangeRole}}) }, 1); err != nil || kept(1) {
		t.Errorf("what changed while it was read: %v, kept %v", err, kept(1))
	}
	if err := fill(func() {}, 1); err != nil || !kept(1) {
		t.Errorf("%v, kept %v", err, kept(1))
	}
	if err := fill(func() {}, 1, 2); err != nil || len(asked) != 1 || asked[0] != 2 || !kept(2) {
		t.Errorf("%v, %v was read, kept %v", err, asked, kept(2))
	}
	if err := c.Fill([]int{1, 2}, func([]int) (map[int]string, error) { return nil, errors.New("read again") }); err != nil {
		t.Error(err)
	}
}

// TestReading checks that a value is not cached if a change was announced after Reading.
func TestReading(t *testing.T) {
	var all Set
	c := newTestCache(&all)
	keep := c.Reading()
	keep(1, "read")
	all.Changed([]keyserver.Change{{Kind: keyserver.ChangeRole}})
	keep(2, "stale")
	if _, ok := c.held(2); ok || c.Len() != 0 {
		t.Errorf("%d are kept, of which none may be", c.Len())
	}
	c.Reading()(2, "read again")
	if v, _ := c.held(2); v != "read again" {
		t.Errorf("got %q", v)
	}
}

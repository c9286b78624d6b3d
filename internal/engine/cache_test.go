package engine

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

func newTestCache(in *caches) *cache[int, string] {
	return newCache[int, string](in, 2, keyserver.ChangeRole)
}

func TestCache(t *testing.T) {
	reads := 0
	reading := func(v string) func() (string, error) {
		return func() (string, error) { reads++; return v, nil }
	}
	c := newTestCache(new(caches))
	if _, err := c.get(t.Context(), 1, func() (string, error) { return "", errors.New("no") }); err == nil {
		t.Error("a failed read must fail")
	}
	for range 3 {
		if v, _ := c.get(t.Context(), 1, reading("a")); v != "a" {
			t.Errorf("got %q", v)
		}
	}
	if reads != 1 {
		t.Errorf("%d reads, want 1: a failure must not be kept, a value must", reads)
	}
	c.drop(1)
	if v, _ := c.get(t.Context(), 1, reading("b")); v != "b" {
		t.Errorf("after a change: got %q", v)
	}
	c.dropAll()
	if v, _ := c.get(t.Context(), 1, reading("c")); v != "c" {
		t.Errorf("after a reset: got %q", v)
	}
	for k := range 100 {
		if _, err := c.get(t.Context(), k, reading("x")); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.entries) > 2 {
		t.Errorf("holds %d entries, the bound is 2", len(c.entries))
	}
}

// A read that began before a change may carry the state from before it.
func TestAReadThatAChangeOvertookIsNotKept(t *testing.T) {
	c := newTestCache(new(caches))
	v, err := c.get(t.Context(), 1, func() (string, error) {
		c.drop(1) // the change is committed and announced while we read
		return "old", nil
	})
	if v != "old" || err != nil {
		t.Fatalf("got %q, %v", v, err)
	}
	if v, _ := c.get(t.Context(), 1, func() (string, error) { return "new", nil }); v != "new" {
		t.Errorf("got %q: what a change overtook was kept", v)
	}
}

// After a reset everybody misses: the store is asked once for each entry, and
// not once for each operation that was waiting.
func TestMissesShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(new(caches))
		c.max = 10
		var reads atomic.Int64
		leave := make(chan struct{})
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				v, err := c.get(t.Context(), i%4, func() (string, error) {
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

// Whoever asks after a change is answered by a read that began after it, though
// an older one is still under way, and what that brings is not kept.
func TestAChangeDuringAReadIsNotLost(t *testing.T) {
	for name, change := range map[string][]keyserver.Change{
		"OfTheKind": {{Kind: keyserver.ChangeRole}},
		"Reset":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all caches
				c := newTestCache(&all)
				leave := make(chan struct{})
				var older sync.WaitGroup
				for range 2 {
					older.Go(func() {
						v, err := c.get(t.Context(), 1, func() (string, error) { <-leave; return "old", nil })
						if v != "old" || err != nil {
							t.Errorf("who asked before: %q, %v", v, err)
						}
					})
				}
				synctest.Wait()
				all.changed(change)
				for range 2 {
					v, err := c.get(t.Context(), 1, func() (string, error) { return "new", nil })
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

// probe looks into one cache.
type probe struct {
	put   func() // two entries, the first by the id of the changes below
	count func() int
}

func probeOf[K comparable, V any](c *cache[K, V], first, second K) probe {
	return probe{
		put: func() {
			var v V
			c.keep(first, v, c.announced.Load())
			c.keep(second, v, c.announced.Load())
		},
		count: func() int { return len(c.entries) },
	}
}

// What each kind of change makes stale: a cache that misses one would be a
// decision on old rights.
func TestWhatAChangeMakesStale(t *testing.T) {
	kinds := []keyserver.ChangeKind{
		keyserver.ChangeTrustedCA, keyserver.ChangeRole, keyserver.ChangePrincipal, keyserver.ChangeKey, keyserver.ChangeSession,
		keyserver.ChangeTrustedServer, keyserver.ChangePrincipalTrust, keyserver.ChangeCertificate, keyserver.ChangeRevocation,
		keyserver.ChangeACLTemplate, keyserver.ChangeTemplatedDirectory,
	}
	e := New(Config{Store: new(sqlstore.Store)})
	id, other := keyserver.IDFromUint64(1), keyserver.IDFromUint64(2)
	const one, all = 1, 2 // entries that a change of the kind drops
	cases := map[string]struct {
		probe
		stale map[keyserver.ChangeKind]int
	}{
		"principals": {probeOf(&e.principals.cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangePrincipal: one}},
		"roles":      {probeOf(&e.roles.cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeRole: one}},
		"keys":       {probeOf(&e.keys.cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeKey: one}},
		"standings":  {probeOf(&e.standings.cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeCertificate: one}},
		"issuers":    {probeOf(e.issuers, "a", "b"), map[keyserver.ChangeKind]int{keyserver.ChangeRevocation: all}},
		"anchors":    {probeOf(e.anchors, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeTrustedCA: all}},
		"enrolled":   {probeOf(e.enrolled, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeCertificate: all}},
		"peers":      {probeOf(&e.peers.cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeTrustedServer: one}},
		"trusts": {
			probeOf(e.trusts, trustKey{principal: id}, trustKey{principal: other}),
			map[keyserver.ChangeKind]int{keyserver.ChangePrincipalTrust: all},
		},
	}
	for field := range reflect.TypeFor[Engine]().Fields() {
		if _, ok := cases[field.Name]; !ok && strings.HasPrefix(field.Type.String(), "*engine.cache") {
			t.Errorf("the cache %s is not looked at here", field.Name)
		}
	}
	for name, tc := range cases {
		left := func(changes ...keyserver.Change) int {
			tc.put()
			if tc.count() != 2 {
				t.Fatalf("%s: %d entries, want 2", name, tc.count())
			}
			e.changed(changes)
			return tc.count()
		}
		got := map[keyserver.ChangeKind]int{}
		for _, kind := range kinds {
			if n := left(keyserver.Change{Kind: kind, ID: id}); n < 2 {
				got[kind] = 2 - n
				if n := left(keyserver.Change{Kind: kind}); n != 0 {
					t.Errorf("%s: %d entries left after a %s that names none", name, n, kind)
				}
			}
		}
		if diff := cmp.Diff(tc.stale, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if n := left(); n != 0 {
			t.Errorf("%s: %d entries left after a reset", name, n)
		}
	}
}

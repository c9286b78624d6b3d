package httpapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLazyDeadline compares a lazyDeadline of a minute with a context of context.WithDeadline, with and without an
// earlier call of Done.
func TestLazyDeadline(t *testing.T) {
	type key struct{}
	for name, tc := range map[string]struct {
		parentEnds, compared time.Duration // from the start
	}{
		"Before":         {parentEnds: time.Hour, compared: time.Second},
		"AtTheDeadline":  {parentEnds: time.Hour, compared: time.Minute},
		"AfterIt":        {parentEnds: time.Hour, compared: 2 * time.Minute},
		"AfterTheParent": {parentEnds: time.Second, compared: 2 * time.Second},
		"AfterBoth":      {parentEnds: time.Second, compared: 2 * time.Minute},
	} {
		for _, started := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				parent, end := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
				time.AfterFunc(tc.parentEnds, end)
				at := time.Now().Add(time.Minute)
				want, cancel := context.WithDeadline(parent, at)
				defer cancel()
				got := &lazyDeadline{parent: parent, at: at}
				defer got.end()
				if started {
					_ = got.Done()
				}
				time.Sleep(tc.compared)
				synctest.Wait()
				if !errors.Is(got.Err(), want.Err()) {
					t.Errorf("%s, started %t: %v, want %v", name, started, got.Err(), want.Err())
				}
				if d, ok := got.Deadline(); !ok || !d.Equal(at) || got.Value(key{}) != "value" {
					t.Errorf("%s, started %t: deadline %v, value %v", name, started, d, got.Value(key{}))
				}
				was := got.Err()
				if end(); was != nil && !errors.Is(got.Err(), was) {
					t.Errorf("%s, started %t: %v, and then %v", name, started, was, got.Err())
				}
				if <-got.Done(); got.Err() == nil {
					t.Errorf("%s, started %t: it is done without an error", name, started)
				}
			})
		}
	}
}

// TestLazyDeadlineOfAChild checks that a context ends at the deadline of its parent, or when end is called.
func TestLazyDeadlineOfAChild(t *testing.T) {
	for _, ends := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			limited := &lazyDeadline{parent: t.Context(), at: time.Now().Add(time.Minute)}
			child, cancel := context.WithCancel(limited)
			defer cancel()
			time.AfterFunc(ends, limited.end)
			begun, want := time.Now(), min(ends, time.Minute)
			<-child.Done()
			if took := time.Since(begun); took != want {
				t.Errorf("it ended after %s, want %s", took, want)
			}
		})
	}
}

// TestLazyDeadlineAfterItsEnd checks that work that outlives the request ends, although nothing called Done before.
func TestLazyDeadlineAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := &lazyDeadline{parent: t.Context(), at: time.Now().Add(time.Minute)}
		limited.end()
		if !errors.Is(limited.Err(), context.Canceled) {
			t.Errorf("got %v", limited.Err())
		}
		child, cancel := context.WithCancel(limited)
		defer cancel()
		begun := time.Now()
		<-child.Done()
		if took := time.Since(begun); took != 0 {
			t.Errorf("a child ended after %s", took)
		}
	})
}

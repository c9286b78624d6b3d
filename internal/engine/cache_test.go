package engine

import (
	"errors"
	"testing"
)

func TestCache(t *testing.T) {
	reads := 0
	reading := func(v string) func() (string, error) {
		return func() (string, error) { reads++; return v, nil }
	}
	c := newCache[int, string](2)
	if _, err := c.get(1, func() (string, error) { return "", errors.New("no") }); err == nil {
		t.Error("a failed read must fail")
	}
	for range 3 {
		if v, _ := c.get(1, reading("a")); v != "a" {
			t.Errorf("got %q", v)
		}
	}
	if reads != 1 {
		t.Errorf("%d reads, want 1: a failure must not be kept, a value must", reads)
	}
	c.drop(1)
	if v, _ := c.get(1, reading("b")); v != "b" {
		t.Errorf("after a change: got %q", v)
	}
	c.dropAll()
	if v, _ := c.get(1, reading("c")); v != "c" {
		t.Errorf("after a reset: got %q", v)
	}
	for k := range 100 {
		if _, err := c.get(k, reading("x")); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.entries) > 2 {
		t.Errorf("holds %d entries, the bound is 2", len(c.entries))
	}
}

// A read that began before a change may carry the state from before it.
func TestAReadThatAChangeOvertookIsNotKept(t *testing.T) {
	c := newCache[int, string](2)
	v, err := c.get(1, func() (string, error) {
		c.drop(1) // the change is committed and announced while we read
		return "old", nil
	})
	if v != "old" || err != nil {
		t.Fatalf("got %q, %v", v, err)
	}
	if v, _ := c.get(1, func() (string, error) { return "new", nil }); v != "new" {
		t.Errorf("got %q: what a change overtook was kept", v)
	}
}

package peer

import (
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	var b breaker
	step := func(reason string, when float64, want bool) {
		t.Helper()
		if _, ok := b.allow(at(when)); ok != want {
			t.Fatalf("%s: allowed %v at %v s", reason, ok, when)
		}
	}
	fail := func(when float64) { b.report(at(when), failed) }

	for range breakAfter - 1 {
		step("a few failures are nothing", 0, true)
		fail(0)
	}
	step("a few failures are nothing", 0, true)
	b.report(at(0), answered)
	for range breakAfter {
		step("they are forgotten once the peer answers", 0, true)
		fail(0)
	}
	step("it is open", 0, false)
	if wait, _ := b.allow(at(0.25)); wait != 750*time.Millisecond {
		t.Errorf("says to wait %s", wait)
	}
	fail(0.5) // the call began before the breaker opened
	step("what was under way does not prolong it", 1, true)
	step("one at a time tries", 1, false)
	b.report(at(1), unknown)
	step("whoever went away leaves the try to the next", 1, true)
	fail(1.1)
	step("a try that fails opens it for twice as long", 3, false)
	step("a try that fails opens it for twice as long", 3.1, true)
	b.report(at(3.2), answered)
	step("an answer closes it", 3.2, true)
	step("an answer closes it", 3.2, true)
	for i := range 20 {
		fail(100 * float64(i+1))
	}
	if wait, ok := b.allow(at(2000)); ok || wait > maxOpen {
		t.Errorf("after many failures: wait %s", wait)
	}
}

package peer

import (
	"sync"
	"time"
)

// Bounds of a breaker.
const (
	breakAfter = 5 // failures in a row
	minOpen    = time.Second
	maxOpen    = 8 * time.Second
)

// outcome is how a call ended, as far as the peer's health goes.
type outcome int

const (
	answered outcome = iota // even if it was a refusal
	failed
	unknown // the caller went away
)

// breaker keeps calls from a peer that does not answer: after some failures in
// a row it lets none through for a while, then one at a time to try.
type breaker struct {
	mu     sync.Mutex
	fails  int
	until  time.Time // no call before
	pause  time.Duration
	trying bool
}

// allow reports whether a call may be made at now, or how long to wait. Each
// call that may be made must be reported.
func (b *breaker) allow(now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.fails < breakAfter:
		return 0, true
	case now.Before(b.until):
		return b.until.Sub(now), false
	case b.trying:
		return minOpen, false
	}
	b.trying = true
	return 0, true
}

// report says how a call ended.
func (b *breaker) report(now time.Time, o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
	switch o {
	case answered:
		b.fails, b.pause = 0, 0
	case failed:
		// Of the calls that were under way together, one opens it.
		if b.fails++; b.fails >= breakAfter && !now.Before(b.until) {
			b.pause = min(max(2*b.pause, minOpen), maxOpen)
			b.until = now.Add(b.pause)
		}
	case unknown:
	}
}

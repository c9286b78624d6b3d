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

// outcome is the end of a call, in terms of the peer's health.
type outcome int

const (
	answered outcome = iota // including refusals
	failed
	unknown // the caller left
)

// breaker stops calls to a peer that does not respond. After breakAfter failures in a row
// it permits no call for a while, then one at a time as a probe.
type breaker struct {
	mu     sync.Mutex
	fails  int
	until  time.Time // no call before this time
	pause  time.Duration
	trying bool
}

// allow reports whether a call may be made at now. If not, wait is the time to wait. The
// caller must report the outcome of each permitted call.
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

// report records the outcome of a call.
func (b *breaker) report(now time.Time, o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
	switch o {
	case answered:
		b.fails, b.pause = 0, 0
	case failed:
		// If concurrent calls fail, only the first one opens the breaker.
		if b.fails++; b.fails >= breakAfter && !now.Before(b.until) {
			b.pause = min(max(2*b.pause, minOpen), maxOpen)
			b.until = now.Add(b.pause)
		}
	case unknown:
	}
}

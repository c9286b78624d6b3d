package peer

import (
	"sync"
	"time"
)

// Limits of a breaker.
const (
	breakAfter = 5 // consecutive failures
	minOpen    = time.Second
	maxOpen    = 8 * time.Second
)

// outcome says whether the peer responded to a call.
type outcome int

const (
	answered outcome = iota // also with a refusal
	failed
	unknown // the caller disconnected
)

// breaker stops calls to a peer that does not respond. After breakAfter consecutive failures it allows no call for some
// time. Then it allows one call at a time, as a probe.
type breaker struct {
	mu     sync.Mutex
	fails  int
	until  time.Time // no call before this time
	pause  time.Duration
	trying bool
}

// allow reports whether a call may be made at now. If not, wait is the remaining time. The caller must report the
// outcome of each allowed call.
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
		// If concurrent calls fail, only the first failure prolongs the pause.
		if b.fails++; b.fails >= breakAfter && !now.Before(b.until) {
			b.pause = min(max(2*b.pause, minOpen), maxOpen)
			b.until = now.Add(b.pause)
		}
	case unknown:
	}
}

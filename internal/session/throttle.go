package session

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How many failed logins are let through, at once and then per second. The
// pair is the tightest; the name alone is wide, so that a stranger cannot
// lock a user out cheaply, and still bounds a guess from many addresses.
var throttleLimits = map[string]struct {
	perSecond rate.Limit
	burst     int
}{
	"pair":    {rate.Every(6 * time.Second), 10},
	"name":    {rate.Every(time.Second), 60},
	"address": {rate.Every(time.Second), 60},
}

const maxThrottled = 8192

// throttle counts failed logins per name, per address and per pair of both.
// A success costs nothing, so it slows nobody who knows the password.
type throttle struct {
	clock   func() time.Time
	mu      sync.Mutex
	buckets map[[3]string]*rate.Limiter
}

func newThrottle(clock func() time.Time) *throttle {
	return &throttle{clock: clock, buckets: map[[3]string]*rate.Limiter{}}
}

// wait returns how long the next attempt has to wait, 0 for not at all.
func (t *throttle) wait(l Login) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, longest := t.clock(), time.Duration(0)
	for _, k := range keysOf(l) {
		b, ok := t.buckets[k]
		if !ok {
			continue
		}
		if missing := 1 - b.TokensAt(now); missing > 0 {
			longest = max(longest, time.Duration(missing/float64(b.Limit())*float64(time.Second)))
		}
	}
	return longest
}

// failed counts a failed login.
func (t *throttle) failed(l Login) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	for _, k := range keysOf(l) {
		b, ok := t.buckets[k]
		if !ok {
			t.makeRoom(now)
			limit := throttleLimits[k[0]]
			b = rate.NewLimiter(limit.perSecond, limit.burst)
			t.buckets[k] = b
		}
		b.AllowN(now, 1)
	}
}

// succeeded forgets the failures of a pair.
func (t *throttle) succeeded(l Login) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.buckets, keysOf(l)[0])
}

// makeRoom keeps the table bounded: recovered buckets go first, then any.
func (t *throttle) makeRoom(now time.Time) {
	if len(t.buckets) < maxThrottled {
		return
	}
	for k, b := range t.buckets {
		if b.TokensAt(now) >= float64(b.Burst()) {
			delete(t.buckets, k)
		}
	}
	for k := range t.buckets {
		if len(t.buckets) < maxThrottled {
			return
		}
		delete(t.buckets, k)
	}
}

// keysOf are the buckets of an attempt, the pair first. Only where a password
// could be guessed is there one for the name alone: whoever claims the subject
// of a token could keep its owner out, and gain nothing else.
func keysOf(l Login) [][3]string {
	name := cut(l.Name)
	keys := [][3]string{{"pair", name, l.Address}, {"address", l.Address}}
	if l.Password != "" {
		keys = append(keys, [3]string{"name", name})
	}
	return keys
}

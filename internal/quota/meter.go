package quota

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Meter bounds how fast each holder may cause what is known only when it has happened. A
// holder that has caused too much is in debt until enough time has passed. The debt is never
// more than two bursts. It is safe for concurrent use, and remembers only holders that have
// caused something lately. A nil Meter bounds nothing.
type Meter[K comparable] struct {
	perSecond rate.Limit
	atOnce    int
	clock     func() time.Time

	mu      sync.Mutex
	holders map[K]*rate.Limiter
	sweepAt int // holders
}

// fewHolders are not worth a sweep.
const fewHolders = 1024

// NewMeter returns a meter of so many at once, and then so many per second, for each holder.
func NewMeter[K comparable](perSecond float64, atOnce int, clock func() time.Time) *Meter[K] {
	return &Meter[K]{perSecond: rate.Limit(perSecond), atOnce: atOnce, clock: clock, holders: map[K]*rate.Limiter{}, sweepAt: fewHolders}
}

// Count adds n to what the holder has caused, or a whole burst if n is more.
func (m *Meter[K]) Count(holder K, n int) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	l := m.holders[holder]
	if l == nil {
		m.sweep(now)
		l = rate.NewLimiter(m.perSecond, m.atOnce)
		m.holders[holder] = l
	}
	if l.TokensAt(now) > -float64(m.atOnce) {
		l.ReserveN(now, min(n, m.atOnce))
	}
}

// Wait returns how long the holder has to wait until it may cause n more. It is zero if the
// holder is not in debt now.
func (m *Meter[K]) Wait(holder K, n int) time.Duration {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.holders[holder]
	if l == nil {
		return 0
	}
	tokens := l.TokensAt(m.clock())
	if tokens >= 0 {
		return 0
	}
	return time.Duration((float64(min(n, m.atOnce)) - tokens) / float64(m.perSecond) * float64(time.Second))
}

// sweep forgets holders that have no debt and their whole burst again.
func (m *Meter[K]) sweep(now time.Time) {
	if len(m.holders) < m.sweepAt {
		return
	}
	for holder, l := range m.holders {
		if l.TokensAt(now) >= float64(m.atOnce) {
			delete(m.holders, holder)
		}
	}
	m.sweepAt = max(fewHolders, 2*len(m.holders))
}

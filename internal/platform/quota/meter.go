package quota

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Meter limits the rate of events of each holder. It is for events that can only be counted after they have happened. A
// holder that exceeds the limit gets a debt of at most two bursts, which decreases with time. A Meter is safe for
// concurrent use and forgets holders without recent events. A nil Meter has no limit.
type Meter[K comparable] struct {
	perSecond rate.Limit
	atOnce    int
	clock     func() time.Time

	mu      sync.Mutex
	holders map[K]*rate.Limiter
	sweepAt int // with fewer holders, sweep does nothing
}

// fewHolders is the minimum of Meter.sweepAt.
const fewHolders = 1024

// NewMeter returns a Meter that allows each holder a burst of atOnce events, and then perSecond events per second.
func NewMeter[K comparable](perSecond float64, atOnce int, clock func() time.Time) *Meter[K] {
	return &Meter[K]{perSecond: rate.Limit(perSecond), atOnce: atOnce, clock: clock, holders: map[K]*rate.Limiter{}, sweepAt: fewHolders}
}

// Count counts n events of the holder, but at most a burst.
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

// Wait returns the time until the holder may cause n more events. It is zero if the holder has no debt.
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

// sweep forgets holders that may cause a full burst again.
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

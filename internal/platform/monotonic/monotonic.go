// Package monotonic tells a process the time, whatever somebody does to the machine's clock:
// it goes on from where the process began, as fast as the machine's uptime, and a step of
// the clock is seen and said, not followed (docs/adr/0059-a-clock-that-is-set.md).
package monotonic

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Tolerance is how far the machine's clock may be set within budgetTime and be
	// followed: as time servers do where a machine was a little off. Time waits where
	// that is back.
	Tolerance  = 5 * time.Second
	budgetTime = time.Hour
	// Every is how often the clock is to be looked at.
	Every = time.Second
	// asleep is the least sleep of the machine that counts, the noise between two clocks.
	asleep = 100 * time.Millisecond
	// MostAhead bounds how far ahead of the machine's clock a process begins. Something
	// that claims to be from later was not written by a clock that was a little wrong.
	MostAhead = 24 * time.Hour
)

// Machine is what has clocks.
type Machine struct {
	Wall   func() time.Time     // the time of day, without a monotonic reading
	Uptime func() time.Duration // how long the machine has worked since some moment
	Asleep func() time.Duration // how long it has slept since some moment
}

// Clock is the time of a process. It is safe for concurrent use.
type Clock struct {
	machine Machine
	origin  time.Time    // the time at uptime 0, but for shift
	shift   atomic.Int64 // in nanoseconds
	last    atomic.Int64 // what was told last, in nanoseconds since origin

	mu   sync.Mutex
	held time.Duration // how far the machine's clock is ahead of this one
	said time.Duration // how far that was when it was said last
	used time.Duration // of Tolerance, since the uptime that follows
	from time.Duration
	aged time.Duration // of the machine's sleep, what is in shift
}

// New begins with the machine's clock.
func New() *Clock { return On(Machine{wall, uptime, slept}) }

// On begins with the clock of a given machine.
func On(m Machine) *Clock {
	c := &Clock{machine: m, origin: m.Wall().Add(-m.Uptime()), aged: m.Asleep()}
	c.last.Store(math.MinInt64)
	return c
}

// Now tells the time. It never goes back.
func (c *Clock) Now() time.Time {
	at := int64(c.machine.Uptime()) + c.shift.Load()
	for {
		last := c.last.Load()
		if at <= last {
			return c.origin.Add(time.Duration(last))
		}
		if c.last.CompareAndSwap(last, at) {
			return c.origin.Add(time.Duration(at))
		}
	}
}

// Step is a move of the machine's clock that was not followed.
type Step struct {
	By   time.Duration // how far, positive for ahead
	Away time.Duration // how far the machine's clock is ahead of the process now
}

// Look compares the machine's clock with this one. It follows what is within Tolerance,
// and sleep of the machine, and answers each step beyond that once.
func (c *Clock) Look() (s Step, stepped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if total := c.machine.Asleep(); total-c.aged > asleep {
		c.shift.Add(int64(total - c.aged))
		c.aged = total
	}
	if up := c.machine.Uptime(); up-c.from >= budgetTime {
		c.from, c.used = up, 0
	}
	gap := c.gap()
	if c.held = gap; gap.Abs() <= Tolerance-c.used {
		c.used += gap.Abs()
		c.shift.Add(int64(gap))
		c.held = 0
	}
	s = Step{gap - c.said, c.held}
	if stepped = s.By.Abs() > Tolerance; stepped || c.held == 0 {
		c.said = c.held
	}
	return s, stepped
}

// gap is how far the machine's clock is ahead.
func (c *Clock) gap() time.Duration {
	return c.machine.Wall().Sub(c.origin.Add(c.machine.Uptime() + time.Duration(c.shift.Load())))
}

// Follow goes to where the machine's clock is, if that is ahead.
func (c *Clock) Follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gap := c.gap(); gap > 0 {
		c.shift.Add(int64(gap))
		c.held, c.said = 0, 0
	}
}

// Begin is for before the time has been used: it is a given one, where that is beyond
// Tolerance away, or where least is set only if it is ahead, and not a day or more. It
// answers how far the machine's clock is from what then holds.
func (c *Clock) Begin(at time.Time, least bool) (s Step, moved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gap := c.gap()
	by := at.Sub(c.Now())
	if by.Abs() <= Tolerance || least && (by < 0 || by > MostAhead) {
		return Step{}, false
	}
	c.shift.Add(int64(by))
	c.last.Store(math.MinInt64)
	c.held, c.said = gap-by, gap-by
	return Step{c.held, c.held}, true
}

// Away is how far the machine's clock is ahead of the process, as last looked at.
func (c *Clock) Away() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

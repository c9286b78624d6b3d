// Package monotonic implements a clock that is independent of changes to the machine's clock. It starts with the time
// of the machine's clock and advances with the machine's uptime. If the machine's clock is set, it reports the step but
// does not follow it (docs/adr/0059-a-clock-that-is-set.md).
package monotonic

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Tolerance is the maximum total change of the machine's clock within budgetTime that this clock follows. Time
	// servers make such small corrections. If the machine's clock is set back by such a correction, Now returns the
	// same time until the machine's clock has reached that time again.
	Tolerance  = 5 * time.Second
	budgetTime = time.Hour
	// Every is the interval in which Look must be called.
	Every = time.Second
	// asleep is the minimum sleep of the machine that is added to the clock. Smaller values are measurement noise.
	asleep = 100 * time.Millisecond
	// MostAhead is how far a process may begin ahead of the machine's clock. If stored data has a later time than that,
	// the reason is not a slightly wrong clock.
	MostAhead = 24 * time.Hour
)

// Machine contains the clocks of a machine.
type Machine struct {
	Wall   func() time.Time     // the time of day, without a monotonic reading
	Uptime func() time.Duration // time that the machine has run since a fixed time
	Asleep func() time.Duration // time that the machine has slept since a fixed time
}

// Clock is the clock of a process. It is safe for concurrent use.
type Clock struct {
	machine Machine
	origin  time.Time    // the time of this clock at uptime 0 if shift is 0
	shift   atomic.Int64 // added to origin and uptime, in nanoseconds
	last    atomic.Int64 // the last result of Now, in nanoseconds since origin

	mu          sync.Mutex
	held        time.Duration // how far the machine's clock is ahead of this one
	reportedGap time.Duration // the value of held at the last report
	used        time.Duration // part of Tolerance that was used since the uptime from
	from        time.Duration
	aged        time.Duration // total sleep of the machine that shift includes
}

// New returns a Clock that starts with the time of the machine's clock.
func New() *Clock { return On(Machine{wall, uptime, slept}) }

// On returns a Clock that starts with the clock of a given machine.
func On(m Machine) *Clock {
	c := &Clock{machine: m, origin: m.Wall().Add(-m.Uptime()), aged: m.Asleep()}
	c.last.Store(math.MinInt64)
	return c
}

// Now returns the time. The result is never earlier than the previous result.
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

// Step is a change of the machine's clock that this clock did not follow.
type Step struct {
	By   time.Duration // size of the change; positive: the machine's clock was set ahead
	Away time.Duration // how far the machine's clock is now ahead of this clock
}

// Look compares the machine's clock with this clock. It follows changes within Tolerance and adds the sleep of the
// machine. It reports each larger step once.
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
	s = Step{gap - c.reportedGap, c.held}
	if stepped = s.By.Abs() > Tolerance; stepped || c.held == 0 {
		c.reportedGap = c.held
	}
	return s, stepped
}

// gap returns how far the machine's clock is ahead of this clock.
func (c *Clock) gap() time.Duration {
	return c.machine.Wall().Sub(c.origin.Add(c.machine.Uptime() + time.Duration(c.shift.Load())))
}

// Follow sets this clock to the machine's clock if the machine's clock is ahead of this clock.
func (c *Clock) Follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gap := c.gap(); gap > 0 {
		c.shift.Add(int64(gap))
		c.held, c.reportedGap = 0, 0
	}
}

// Begin sets the clock to the time at if the difference is more than Tolerance. If least is true, it sets the clock
// only if at is later than the clock, by at most MostAhead. It returns how far the machine's clock is ahead of the new
// time. Call Begin before the clock is used.
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
	c.held, c.reportedGap = gap-by, gap-by
	return Step{c.held, c.held}, true
}

// Away returns how far the machine's clock was ahead of this clock at the last call of Look.
func (c *Clock) Away() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

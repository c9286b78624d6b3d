package monotonic_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/monotonic"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

type machine struct {
	wall           time.Time
	uptime, asleep time.Duration
}

func (m *machine) pass(d time.Duration) { m.wall, m.uptime = m.wall.Add(d), m.uptime+d }

func (m *machine) clock() *monotonic.Clock {
	return monotonic.On(monotonic.Machine{
		Wall: func() time.Time { return m.wall }, Uptime: func() time.Duration { return m.uptime }, Asleep: func() time.Duration { return m.asleep },
	})
}

// TestStep checks that a step of the machine's clock, forward or back, is reported once and ignored. The same applies
// to the step back to the right time.
func TestStep(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, monotonic.Tolerance + time.Second, -365 * 24 * time.Hour} {
		m := &machine{wall: noon, uptime: time.Hour}
		c := m.clock()
		m.pass(time.Minute)
		m.wall = m.wall.Add(by)
		if got := c.Now(); !got.Equal(noon.Add(time.Minute)) {
			t.Errorf("%s: unseen, the time is %s", by, got)
		}
		if s, stepped := c.Look(); !stepped || s != (monotonic.Step{By: by, Away: by}) {
			t.Errorf("%s: seen as %v, %v", by, s, stepped)
		}
		m.pass(time.Second)
		if s, stepped := c.Look(); stepped || c.Away() != by {
			t.Errorf("%s: seen again as %v; %s", by, s, c.Away())
		}
		if got := c.Now(); !got.Equal(noon.Add(61 * time.Second)) {
			t.Errorf("%s: the time is %s", by, got)
		}
		m.wall = m.wall.Add(-by)
		if s, stepped := c.Look(); !stepped || s != (monotonic.Step{By: -by}) || c.Away() != 0 {
			t.Errorf("%s: the way back is seen as %v, %v", by, s, stepped)
		}
		if got := c.Now(); !got.Equal(noon.Add(61 * time.Second)) {
			t.Errorf("%s: after the way back the time is %s", by, got)
		}
	}
}

// TestFollowed checks that the clock includes the sleep of the machine and small steps of the machine's clock. If the
// machine's clock is set back, Now repeats its last time.
func TestFollowed(t *testing.T) {
	m := &machine{wall: noon}
	c := m.clock()
	m.wall, m.asleep = m.wall.Add(8*time.Hour), 8*time.Hour
	if s, stepped := c.Look(); stepped || !c.Now().Equal(noon.Add(8*time.Hour)) {
		t.Errorf("after sleep: %v, %s", s, c.Now())
	}
	m.wall = m.wall.Add(2 * time.Second)
	if s, stepped := c.Look(); stepped || !c.Now().Equal(m.wall) {
		t.Errorf("a little ahead: %v, %s", s, c.Now())
	}
	was := c.Now()
	m.wall = m.wall.Add(-2 * time.Second)
	if s, stepped := c.Look(); stepped || !c.Now().Equal(was) {
		t.Errorf("a little back: %v, %s", s, c.Now())
	}
	m.pass(4 * time.Second)
	if !c.Now().Equal(m.wall) {
		t.Errorf("later: %s", c.Now())
	}
	m.wall = m.wall.Add(time.Hour)
	c.Look()
	if c.Follow(); !c.Now().Equal(m.wall) || c.Away() != 0 {
		t.Errorf("followed: %s", c.Now())
	}
	m.wall = m.wall.Add(-time.Hour)
	c.Look()
	if c.Follow(); !c.Now().Equal(m.wall.Add(time.Hour)) || c.Away() != -time.Hour {
		t.Errorf("back is not followed: %s", c.Now())
	}
}

// TestSmallSteps checks that the clock accepts many small steps up to Tolerance in total, and reports the rest.
func TestSmallSteps(t *testing.T) {
	for _, by := range []time.Duration{-4 * time.Second, 4 * time.Second} {
		m := &machine{wall: noon}
		c := m.clock()
		said := time.Duration(0)
		for range 100 {
			m.pass(time.Second)
			m.wall = m.wall.Add(by)
			if s, stepped := c.Look(); stepped {
				said += s.By
			}
		}
		if away := c.Now().Sub(noon.Add(100 * time.Second)).Abs(); away > monotonic.Tolerance {
			t.Errorf("%s: the time is %s away", by, away)
		}
		if (said-100*by).Abs() > 2*monotonic.Tolerance || (c.Away()-100*by).Abs() > monotonic.Tolerance {
			t.Errorf("%s: %s were said, %s away", by, said, c.Away())
		}
	}
}

// TestBegin checks when the time of the database becomes the start time of a process.
func TestBegin(t *testing.T) {
	for _, c := range []struct {
		at    time.Duration // difference to the machine's clock
		least bool
		moved bool
	}{
		{0, true, false},
		{-time.Hour, true, false}, // stored rows are usually old
		{time.Second, true, false},
		{time.Hour, true, true},
		{25 * time.Hour, true, false},
		{time.Hour, false, true},
		{-time.Hour, false, true},
		{monotonic.Tolerance, false, false},
		{-1000 * time.Hour, false, true},
	} {
		m := &machine{wall: noon, uptime: time.Minute}
		clock := m.clock()
		clock.Now()
		s, moved := clock.Begin(noon.Add(c.at), c.least)
		want := noon
		if c.moved {
			want = noon.Add(c.at)
		}
		if moved != c.moved || !clock.Now().Equal(want) || c.moved && (s.Away != -c.at || clock.Away() != -c.at) {
			t.Errorf("%+v: %v %v, %s", c, s, moved, clock.Now())
		}
		if s, stepped := clock.Look(); stepped || !clock.Now().Equal(want) {
			t.Errorf("%+v: looked at: %v, %s", c, s, clock.Now())
		}
	}
}

// TestTimeGoesOn checks that, for any changes of the machine's clock, the time never goes back and advances with the
// machine's uptime, except for Tolerance per hour.
func TestTimeGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{wall: noon}
		c := m.clock()
		last := c.Now()
		for range rapid.IntRange(1, 50).Draw(t, "moments") {
			m.pass(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "passes")))
			by := time.Duration(rapid.Int64Range(-int64(2*time.Hour), int64(2*time.Hour)).Draw(t, "step"))
			if rapid.Bool().Draw(t, "little") {
				by /= 3600
			}
			if rapid.Bool().Draw(t, "set") {
				m.wall = m.wall.Add(by)
			}
			c.Look()
			now := c.Now()
			if now.Before(last) {
				t.Fatalf("%s is behind %s", now, last)
			}
			last = now
			if away := now.Sub(noon.Add(m.uptime)).Abs(); away > time.Duration(int64(monotonic.Tolerance)*(1+int64(m.uptime/time.Hour))) {
				t.Fatalf("%s away from the uptime", away)
			}
		}
	})
}

package quota

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// cores simulates the cores of a machine. If more than most requests per second begin, goroutines wait for lag.
type cores struct {
	*Pace[string]
	most    float64
	lag     time.Duration
	begun   map[string]int
	arrived int // since the lag was measured
	at      time.Time
}

func newCores(most float64, lag time.Duration) *cores {
	c := &cores{most: most, lag: lag, begun: map[string]int{}, at: time.Now()}
	c.Pace = NewPace[string](time.Now, func() time.Duration {
		rate := float64(c.arrived) / time.Since(c.at).Seconds()
		c.at, c.arrived = time.Now(), 0
		if rate > c.most {
			return c.lag
		}
		return 0
	}, 1)
	c.least = 100
	return c
}

// client sends requests on connections until ctx ends. On each connection, each is the pause after a request begins.
func (c *cores) client(ctx context.Context, holder string, connections int, each time.Duration) {
	for range connections {
		go func() {
			for ctx.Err() == nil {
				if _, err := c.Wait(ctx, holder); err != nil {
					return
				}
				c.mu.Lock()
				c.arrived++
				c.begun[holder]++
				c.mu.Unlock()
				time.Sleep(each)
			}
		}()
	}
}

// during returns how many requests per second of each holder begin in a period.
func (c *cores) during(d time.Duration) map[string]float64 {
	c.mu.Lock()
	clear(c.begun)
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	rates := map[string]float64{}
	for holder, n := range c.begun {
		rates[holder] = float64(n) / d.Seconds()
	}
	return rates
}

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	type clients map[string]time.Duration // time between two requests on a connection
	twelve := clients{}
	for i := range 12 {
		twelve[strconv.Itoa(i)] = 10 * ms
	}
	for name, c := range map[string]struct {
		greedy, others clients // with 64 and with one connection
		most           float64
		lag            time.Duration
		atLeast, under float64 // requests per second of a greedy holder
	}{
		"alone":                               {clients{"a": 10 * ms}, nil, 0, time.Second, 6300, 6500},
		"cores that are not busy":             {clients{"a": 10 * ms}, clients{"o": 5 * ms}, 1e6, time.Second, 6300, 6500},
		"goroutines that wait little":         {clients{"a": 10 * ms}, clients{"o": 5 * ms}, 0, mostLag, 6300, 6500},
		"cores that are busy above a rate":    {clients{"a": 10 * ms}, clients{"o": 5 * ms}, 3000, 2 * mostLag, 2000, 3500},
		"cores that other programs keep busy": {clients{"a": 10 * ms}, clients{"o": 30 * ms}, 0, 10 * ms, 95, 115},
		"two holders with as many requests":   {clients{"a": 10 * ms, "b": 10 * ms}, nil, 0, 2 * mostLag, 6300, 6500},
		"two holders with nearly as many":     {clients{"a": 10 * ms, "b": 16 * ms}, nil, 0, 2 * mostLag, 3900, 6500},
		"twelve holders beside one with few":  {twelve, clients{"o": 100 * ms}, 0, 10 * ms, 48, 60},
		"beside one with half of the limit":   {clients{"a": 10 * ms}, clients{"o": 15 * ms}, 0, 10 * ms, 95, 115},
		"two holders beside one with few":     {clients{"a": 10 * ms, "b": 10 * ms}, clients{"o": 5 * ms}, 3000, 2 * mostLag, 1000, 1800},
		"four holders at the lowest limit":    {clients{"a": 10 * ms, "b": 10 * ms, "c": 10 * ms, "d": 10 * ms}, clients{"o": 100 * ms}, 0, 10 * ms, 48, 60},
		"beside two requests a second":        {clients{"a": 10 * ms}, clients{"o": 500 * ms}, 0, 2 * mostLag, 5500, 6500},
		"beside one whose requests are slow":  {clients{"a": 10 * ms}, clients{"o": 300 * ms}, 0, 20 * ms, 95, 400},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				k := newCores(c.most, c.lag)
				for holder, each := range c.greedy {
					k.client(ctx, holder, 64, each)
				}
				for holder, each := range c.others {
					k.client(ctx, holder, 1, each)
				}
				k.during(5 * time.Second)
				rates := k.during(5 * time.Second)
				for holder := range c.greedy {
					if got := rates[holder]; got < c.atLeast || got >= c.under {
						t.Errorf("%s begins %.0f requests per second, want %.0f to %.0f", holder, got, c.atLeast, c.under)
					}
				}
				for holder, each := range c.others {
					if got, want := rates[holder], 1/each.Seconds(); got < 0.85*want {
						t.Errorf("%s begins %.1f requests per second, want %.1f", holder, got, want)
					}
				}
				stop()
				time.Sleep(time.Second) // until each client has ended
				if n := k.Waiting(); n != 0 {
					t.Errorf("%d requests wait after their ends", n)
				}
			})
		})
	}
}

// limited returns a Pace that allows 1,000 requests per second. This limit ends after half a second.
func limited(now func() time.Time) *Pace[string] {
	p := NewPace[string](now, func() time.Duration { return time.Second }, 1)
	p.limit, p.crowded = 1000, longestCrowded
	p.crowd, p.adjusted = now(), now()
	p.least = p.limit
	return p
}

// begin starts n requests of a holder, which begin or wait until ctx ends. It returns the number that have begun.
func begin(ctx context.Context, p *Pace[string], holder string, n int) *atomic.Int64 {
	begun := &atomic.Int64{}
	for range n {
		go func() {
			if _, err := p.Wait(ctx, holder); err == nil {
				begun.Add(1)
			}
		}()
	}
	synctest.Wait()
	return begun
}

// TestPaceLetsGo checks that waiting requests begin when the reason for the limit has ended.
func TestPaceLetsGo(t *testing.T) {
	for name, c := range map[string]struct {
		cause func(p *Pace[string])
		after time.Duration
	}{
		"the holder is alone":   {func(*Pace[string]) {}, longestCrowded + 2*turn},
		"the limit is lifted":   {func(p *Pace[string]) { p.Lift() }, 0},
		"the cores are free":    {func(p *Pace[string]) { p.lag = func() time.Duration { return 0 }; p.least = 1e6 }, 400 * time.Millisecond},
		"the clock is set back": {func(p *Pace[string]) { p.clock = func() time.Time { return time.Now().Add(-time.Hour) } }, 2 * turn},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := limited(time.Now)
				begin(t.Context(), p, "a", 5000)
				if n := p.Waiting(); n < 4900 {
					t.Fatalf("%d of 5000 requests wait", n)
				}
				c.cause(p)
				time.Sleep(c.after)
				synctest.Wait()
				if n := p.Waiting(); n != 0 {
					t.Errorf("%d requests wait", n)
				}
			})
		})
	}
}

// TestPaceWithASetClock sets the clock back while the limit applies. The waiting requests must neither all begin at the
// same time nor wait until the clock has caught up.
func TestPaceWithASetClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := time.Duration(0)
		p := limited(func() time.Time { return time.Now().Add(-behind) })
		ctx, stop := context.WithCancel(t.Context())
		begun := begin(ctx, p, "a", 1000)
		behind = time.Hour
		for range 100 {
			p.Crowd()
			time.Sleep(time.Millisecond)
		}
		if n := begun.Load(); n < 90 || n > 120 {
			t.Errorf("%d requests began in 100 ms", n)
		}
		stop()
		p.Delay("stranger", time.Second)
		behind = 2 * time.Hour
		p.Crowd()
		if d := p.Delay("stranger", time.Second); d > 10*time.Millisecond {
			t.Errorf("a request after the clock was set back is delayed by %s", d)
		}
	})
}

// TestPaceAsTheLimitRises checks that a higher limit does not start all waiting requests at the same time.
func TestPaceAsTheLimitRises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limited(time.Now)
		p.limit = 20
		ctx, stop := context.WithCancel(t.Context())
		begun := begin(ctx, p, "a", 1000)
		for range 10 {
			p.Crowd()
			p.limit *= 1.25
			time.Sleep(40 * time.Millisecond)
			p.adjusted = time.Now()
		}
		if n := begun.Load(); n > 60 {
			t.Errorf("%d requests began in 400 ms", n)
		}
		stop()
		synctest.Wait()
	})
}

// TestPaceIfServeIsLate checks that the limit is the same if the timer is late because the cores are busy.
func TestPaceIfServeIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limited(time.Now)
		p.watched, p.served = true, time.Now() // no timer
		ctx, stop := context.WithCancel(t.Context())
		begun := begin(ctx, p, "a", 1000)
		for range 10 {
			time.Sleep(40 * time.Millisecond)
			p.Crowd()
			p.serve()
			p.watched, p.served = true, time.Now()
		}
		synctest.Wait()
		if n := begun.Load(); n < 380 || n > 420 {
			t.Errorf("%d requests began in 400 ms, want 400", n)
		}
		stop()
		synctest.Wait()
	})
}

// TestPaceForgetsABurst checks that a burst of one holder does not make all other holders count as holders with few
// requests.
func TestPaceForgetsABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limited(time.Now)
		p.limit = 0
		begin(t.Context(), p, "burst", 10_000)
		time.Sleep(2 * adjustment)
		for range 10 {
			time.Sleep(adjustment)
			begin(t.Context(), p, "a", 100)
		}
		if p.hasFew(p.holders["a"]) || p.holders["burst"] != nil {
			t.Error("the burst is remembered")
		}
	})
}

// TestPaceOfOnesThatWait checks that the limit is kept while requests of a holder with few requests wait.
func TestPaceOfOnesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limited(time.Now)
		p.limit, p.least = 100, 100
		ctx, stop := context.WithCancel(t.Context())
		begun := begin(ctx, p, "many", 1000)
		begin(ctx, p, "few", 90)
		time.Sleep(800 * time.Millisecond)
		if n := begun.Load(); n < 75 || n > 90 {
			t.Errorf("%d requests began in 800 ms, want 80", n)
		}
		stop()
		synctest.Wait()
	})
}

// TestPaceOfOnesThatEnded checks that requests that ended while they waited use no part of the limit.
func TestPaceOfOnesThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limited(time.Now)
		begin(t.Context(), p, "a", 10)
		ctx, stop := context.WithCancel(t.Context())
		begin(ctx, p, "a", 1000)
		stop()
		synctest.Wait()
		if n := p.Waiting(); n > 10 || len(p.waiting) > 1 {
			t.Errorf("%d requests of %d holders wait", n, len(p.waiting))
		}
		begun := begin(t.Context(), p, "a", 10)
		time.Sleep(30 * time.Millisecond)
		if n := begun.Load(); n != 10 || len(p.waiting) != 0 {
			t.Errorf("%d of 10 requests began, and %d holders wait", n, len(p.waiting))
		}
	})
}

func TestPaceDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limited(time.Now)
		for range 100 {
			p.Delay("a", time.Second)
		}
		if d := p.Delay("a", time.Second); d < 90*time.Millisecond || d > 101*time.Millisecond {
			t.Errorf("after 100 requests, the next one is delayed by %s", d)
		}
		for range 5000 {
			p.Delay("a", time.Second)
		}
		if d := p.Delay("a", time.Second); d != time.Second {
			t.Errorf("after 5000 requests, the next one is delayed by %s", d)
		}
		if d := p.Delay("b", time.Second); d != 0 {
			t.Errorf("a request of another holder is delayed by %s", d)
		}
		time.Sleep(longestCrowded + 1)
		if d := p.Delay("a", time.Second); d != 0 {
			t.Errorf("without others, a request is delayed by %s", d)
		}
		for range 40 {
			time.Sleep(adjustment)
			p.Delay("one", time.Second)
		}
		if n := len(p.holders); n > 1 {
			t.Errorf("%d holders are remembered", n)
		}
	})
}

// TestPaceBounds checks requests that arrive at any times and may end while they wait. The begun requests of a holder
// never exceed the limit, requests of one holder begin in order, and each begins or ends.
func TestPaceBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		arrivals := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) (a struct {
			holder      string
			after, ends time.Duration
		},
		) {
			a.holder = rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "holder")
			a.after = time.Duration(rapid.IntRange(0, 2000).Draw(rt, "after")) * time.Microsecond
			a.ends = time.Duration(rapid.IntRange(1, 100).Draw(rt, "ends")) * time.Millisecond
			return a
		}), 1, 200).Draw(rt, "arrivals")
		synctest.Test(t, func(t *testing.T) {
			p := limited(time.Now)
			type latest struct {
				request int
				at      time.Time
			}
			begun, ended, last := map[string]int{}, 0, map[string]latest{}
			start := time.Now()
			for i, a := range arrivals {
				time.Sleep(a.after)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), a.ends)
					defer cancel()
					_, err := p.Wait(ctx, a.holder)
					p.mu.Lock()
					defer p.mu.Unlock()
					if err != nil {
						ended++
						return
					}
					begun[a.holder]++
					if most := 2 + int((time.Since(start)+2*turn)*1000/time.Second); begun[a.holder] > most {
						t.Errorf("%d requests of %s began in %s", begun[a.holder], a.holder, time.Since(start))
					}
					if before := last[a.holder]; i < before.request && time.Now().After(before.at) {
						t.Errorf("request %d began after request %d", i, before.request)
					}
					last[a.holder] = latest{max(i, last[a.holder].request), time.Now()}
				}()
				synctest.Wait()
			}
			time.Sleep(200 * time.Millisecond)
			if sum := begun["a"] + begun["b"] + ended; sum != len(arrivals) {
				t.Errorf("%d of %d requests began or ended", sum, len(arrivals))
			}
		})
	})
}

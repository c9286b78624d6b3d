package quota

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

type player struct {
	*Turns[string]
	mu    sync.Mutex
	begun []string // holders in the order in which their work began
	ends  map[string][]func()
}

func newPlayer(cores int) *player {
	return &player{Turns: NewTurns[string](cores, time.Now), ends: map[string][]func(){}}
}

func (p *player) crowded() {
	p.Worked("one")
	p.Worked("another")
}

// enters starts work of a holder, which waits for its turn.
func (p *player) enters(ctx context.Context, holder string) {
	go func() {
		if leave, err := p.Enter(ctx, holder); err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.begun = append(p.begun, holder)
			p.ends[holder] = append(p.ends[holder], leave)
		}
	}()
	synctest.Wait()
}

func (p *player) end(holder string) {
	leave := p.ends[holder][0]
	p.ends[holder] = p.ends[holder][1:]
	leave()
	synctest.Wait()
}

func TestTurnsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(2)
		p.crowded()
		time.Sleep(together + 1)
		for range 100 {
			p.Worked("another")
			p.enters(t.Context(), "another")
		}
		if len(p.begun) != 100 {
			t.Errorf("%d of 100 have begun", len(p.begun))
		}
		for range 100 {
			time.Sleep(time.Millisecond)
			p.end("another")
		}
		p.crowded()
		p.enters(t.Context(), "another")
		if len(p.begun) != 101 {
			t.Error("a holder that worked alone rests")
		}
	})
}

func TestTurnsRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(4)
		p.crowded()
		for _, holder := range []string{"a", "a", "a", "a", "b", "b", "c"} {
			p.enters(t.Context(), holder)
		}
		want := []string{"a", "b", "c", "a", "b", "a", "a"}
		for n := range want {
			p.end(p.begun[n])
		}
		if !slices.Equal(p.begun, want) {
			t.Errorf("the order is %v, want %v", p.begun, want)
		}
	})
}

func TestTurnsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(2)
		p.crowded()
		p.enters(t.Context(), "a")
		p.enters(t.Context(), "a")
		time.Sleep(10 * time.Millisecond)
		p.end("a")
		time.Sleep(9 * time.Millisecond)
		synctest.Wait()
		if len(p.begun) != 1 {
			t.Error("a holder works more than a quarter of two cores")
		}
		p.enters(t.Context(), "b")
		if len(p.begun) != 2 {
			t.Error("another holder waits for one that rests")
		}
		p.end("b")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if len(p.begun) != 3 {
			t.Error("a holder rests for longer than it has worked")
		}
	})
}

func TestTurnsEndWithTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(2)
		p.crowded()
		p.enters(t.Context(), "a")
		ctx, cancel := context.WithCancel(t.Context())
		p.enters(ctx, "b")
		cancel()
		p.enters(t.Context(), "c")
		p.end("a")
		if want := []string{"a", "c"}; !slices.Equal(p.begun, want) {
			t.Errorf("%v have begun, want %v", p.begun, want)
		}
		p.end("c")
		time.Sleep(time.Minute)
		if len(p.holders) != 0 || p.free != 1 {
			t.Errorf("%d holders and %d free places are left", len(p.holders), p.free)
		}
	})
}

// TestTurnsWithoutOvertaking checks that a holder which continuously starts work does not overtake another holder whose
// work waits.
func TestTurnsWithoutOvertaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(2)
		for tenth := range 100 {
			p.Worked("a")
			p.enters(t.Context(), "a")
			if tenth == 20 {
				for range 3 {
					p.Worked("b")
					p.enters(t.Context(), "b")
				}
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if len(p.ends["a"]) >= 5 {
				p.end("a")
			}
			if len(p.ends["b"]) > 0 && tenth%3 == 0 {
				p.end("b")
			}
		}
		if n := len(slices.DeleteFunc(p.begun, func(h string) bool { return h != "b" })); n != 3 {
			t.Errorf("%d of 3 have begun", n)
		}
		time.Sleep(time.Minute)
	})
}

func TestTurnsOfOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(4)
		p.crowded()
		for _, holder := range []string{"a", "b", "c"} {
			p.enters(t.Context(), holder)
		}
		time.Sleep(longest)
		synctest.Wait()
		if want := []string{"a", "b", "c"}; !slices.Equal(p.begun, want) {
			t.Errorf("%v have begun, want %v", p.begun, want)
		}
		for _, holder := range p.begun { // so that no place is released twice
			p.end(holder)
		}
		if len(p.holders) != 0 || p.free != 2 {
			t.Errorf("%d holders and %d free places are left", len(p.holders), p.free)
		}
	})
}

// TestTurnsBounds checks random arrivals, ends and cancellations. Work must never use more than half of the cores, work
// of a holder never more than a quarter, and no work may wait while it could have a place.
func TestTurnsBounds(t *testing.T) {
	type step struct {
		Holder       string
		Kind, Millis int
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "holder"),
			rapid.IntRange(0, 4).Draw(t, "kind"), rapid.IntRange(1, 40).Draw(t, "ms"),
		}
	}), 1, 60)
	rapid.Check(t, func(rt *rapid.T) {
		cores, walk := rapid.IntRange(1, 16).Draw(rt, "cores"), steps.Draw(rt, "steps")
		var broken []string
		synctest.Test(t, func(t *testing.T) {
			p := newPlayer(cores)
			for _, s := range walk {
				p.crowded()
				switch s.Kind {
				case 0, 1:
					p.enters(t.Context(), s.Holder)
				case 2:
					if len(p.ends[s.Holder]) > 0 {
						p.end(s.Holder)
					}
				case 3: // its turn may begin while it is cancelled
					ctx, hangUp := context.WithCancel(t.Context())
					p.enters(ctx, s.Holder)
					hangUp()
					if ends := p.ends["a"]; len(ends) > 0 {
						p.ends["a"] = ends[1:]
						ends[0]()
					}
				case 4:
					time.Sleep(time.Duration(s.Millis) * time.Millisecond)
				}
				synctest.Wait()
				broken = append(broken, p.broken(max(1, cores/2), max(1, cores/4))...)
			}
		})
		for _, b := range broken {
			rt.Error(b)
		}
	})
}

func (p *player) broken(places, each int) (bounds []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0
	for h, ends := range p.ends {
		if sum += len(ends); len(ends) > each {
			bounds = append(bounds, fmt.Sprintf("%s has begun %d, more than %d", h, len(ends), each))
		}
	}
	if sum > places || sum != places-p.free {
		bounds = append(bounds, fmt.Sprintf("%d have begun of %d, and %d places are free", sum, places, p.free))
	}
	for h, held := range p.holders {
		if p.free > 0 && held.waiting.Len() > 0 && held.taken < each {
			bounds = append(bounds, fmt.Sprintf("%s waits while %d places are free", h, p.free))
		}
	}
	return bounds
}

package quota

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Turns shares the cores of a machine among holders of long work. If a single holder works, its work
// does not wait. Otherwise all long work together gets half of the cores, at least one, and each holder
// at most a quarter. Holders take turns. A holder rests after its work if a quarter is less than one
// core. Turns is safe for concurrent use.
type Turns[K comparable] struct {
	clock func() time.Time
	each  int     // concurrent work of one holder
	rest  float64 // rest time of a holder, as a multiple of its work time

	last  atomic.Pointer[K]         // the holder that worked last
	mixed atomic.Pointer[time.Time] // when last changed to another holder

	mu      sync.Mutex
	free    int // places; negative if a single holder has more
	holders map[K]*turnHolder[K]
	ready   list.List // of *turnHolder[K] that wait and may begin
}

// turnHolder is a holder whose long work runs, rests or waits.
type turnHolder[K comparable] struct {
	key     K
	taken   int           // places of running work and of rests
	waiting list.List     // of chan struct{}, closed when its turn comes
	in      *list.Element // of ready, if it is in it
}

const (
	// together is the time after which a holder counts as alone if no other holder has worked.
	together = time.Second
	// longest is the maximum length of a turn. Longer work probably waits for a peer or the database,
	// not for a core. It continues without its turn.
	longest = time.Second
)

// NewTurns returns turns for the given number of cores.
func NewTurns[K comparable](cores int, clock func() time.Time) *Turns[K] {
	each := max(1, cores/4)
	return &Turns[K]{
		clock: clock, each: each, rest: math.Max(0, 4*float64(each)/float64(cores)-1),
		free: max(1, cores/2), holders: map[K]*turnHolder[K]{},
	}
}

// Worked records work of a holder, long or not.
func (t *Turns[K]) Worked(holder K) {
	if last := t.last.Load(); last == nil || *last != holder {
		now := holder // only this copy escapes
		if t.last.Store(&now); last != nil {
			at := t.clock()
			t.mixed.Store(&at)
		}
	}
}

// Crowded reports whether several holders have worked recently.
func (t *Turns[K]) Crowded() bool {
	mixed := t.mixed.Load()
	return mixed != nil && t.clock().Sub(*mixed) <= together
}

// alone reports whether no holder except the calling one has worked recently, or has long work that
// waits, runs or rests. The caller holds mu.
func (t *Turns[K]) alone() bool {
	return len(t.holders) == 1 && !t.Crowded()
}

// Enter waits for the turn of the holder. The caller calls leave after the work. Enter fails only if
// ctx ends. A turn ends automatically after one second.
func (t *Turns[K]) Enter(ctx context.Context, holder K) (leave func(), err error) {
	t.mu.Lock()
	h := t.holders[holder]
	if h == nil {
		h = &turnHolder[K]{key: holder}
		t.holders[holder] = h
	}
	turn := make(chan struct{})
	waiting := h.waiting.PushBack(turn)
	if t.alone() {
		for h.waiting.Len() > 0 {
			t.begin(h)
		}
	}
	t.settle(h)
	t.admit()
	t.mu.Unlock()
	if err := await(ctx, turn, &t.mu, func() { t.free++; t.giveBack(h) }, func() { h.waiting.Remove(waiting); t.settle(h) }); err != nil {
		return nil, err
	}
	return t.leave(h), nil
}

// begin gives a place to the first waiting work of a holder. The caller holds mu.
func (t *Turns[K]) begin(h *turnHolder[K]) {
	t.free--
	h.taken++
	close(h.waiting.Remove(h.waiting.Front()).(chan struct{})) //nolint:errcheck // the list holds nothing else
}

// leave returns the function that ends work of a holder that begins now.
func (t *Turns[K]) leave(h *turnHolder[K]) func() {
	begun := t.clock()
	end := sync.OnceFunc(func() { t.end(h, begun) })
	limit := time.AfterFunc(longest, end)
	return func() {
		limit.Stop()
		end()
	}
}

func (t *Turns[K]) end(h *turnHolder[K], begun time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	rest := time.Duration(t.rest * float64(t.clock().Sub(begun)))
	if rest == 0 || t.alone() {
		t.giveBack(h)
		return
	}
	t.admit()
	time.AfterFunc(rest, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.giveBack(h)
	})
}

// giveBack releases a place of a holder. The caller holds mu.
func (t *Turns[K]) giveBack(h *turnHolder[K]) {
	h.taken--
	t.settle(h)
	t.admit()
}

// settle adds the holder to ready or removes it, so that it is there if and only if it may begin. It
// forgets a holder without work. The caller holds mu.
func (t *Turns[K]) settle(h *turnHolder[K]) {
	switch may := h.waiting.Len() > 0 && h.taken < t.each; {
	case may && h.in == nil:
		h.in = t.ready.PushBack(h)
	case !may && h.in != nil:
		t.ready.Remove(h.in)
		h.in = nil
	}
	if h.taken == 0 && h.waiting.Len() == 0 {
		delete(t.holders, h.key)
	}
}

// admit fills the free places, one holder after the other. The caller holds mu.
func (t *Turns[K]) admit() {
	for t.free > 0 && t.ready.Len() > 0 {
		h := t.ready.Remove(t.ready.Front()).(*turnHolder[K]) //nolint:errcheck // the list holds nothing else
		h.in = nil
		t.begin(h)
		t.settle(h)
	}
}

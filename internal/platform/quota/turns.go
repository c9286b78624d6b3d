package quota

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Turns shares the cores of a machine among holders of long work. As long as one holder works
// alone, none of its work waits. Otherwise all long work together gets half of the cores, at least
// one, and that of one holder a quarter: the holders take turns, and a holder rests after its work if a
// quarter is less than one core. Turns is safe for concurrent use.
type Turns[K comparable] struct {
	clock func() time.Time
	each  int     // work of one holder at once
	rest  float64 // how long a holder rests, as a multiple of its work

	last  atomic.Pointer[K]         // the holder that worked last
	mixed atomic.Pointer[time.Time] // when it was another one than before

	mu      sync.Mutex
	free    int // places; negative if a holder has more because it worked alone
	holders map[K]*turnHolder[K]
	ready   list.List // of *turnHolder[K] that wait and may begin, the next first
}

// turnHolder is a holder whose long work is under way, rests or waits.
type turnHolder[K comparable] struct {
	key     K
	taken   int           // places for work that is under way, or after which the holder rests
	waiting list.List     // of chan struct{}, closed when it is their turn
	in      *list.Element // of ready, if it is there
}

const (
	// together is the time for which a holder does not count as alone after another one has worked.
	together = time.Second
	// longest is how long a turn lasts at most. Work that takes longer probably waits for a peer or the
	// database instead of a core, and continues without its turn.
	longest = time.Second
)

// NewTurns returns turns for so many cores.
func NewTurns[K comparable](cores int, clock func() time.Time) *Turns[K] {
	each := max(1, cores/4)
	return &Turns[K]{
		clock: clock, each: each, rest: math.Max(0, 4*float64(each)/float64(cores)-1),
		free: max(1, cores/2), holders: map[K]*turnHolder[K]{},
	}
}

// Worked notes work of a holder, long or not.
func (t *Turns[K]) Worked(holder K) {
	if last := t.last.Load(); last == nil || *last != holder {
		now := holder // only this copy escapes
		if t.last.Store(&now); last != nil {
			at := t.clock()
			t.mixed.Store(&at)
		}
	}
}

// Crowded reports whether several holders have worked of late.
func (t *Turns[K]) Crowded() bool {
	mixed := t.mixed.Load()
	return mixed != nil && t.clock().Sub(*mixed) <= together
}

// alone reports whether no other holder than the one that calls has worked of late, or has long work
// that waits, is under way or rests. The caller holds mu.
func (t *Turns[K]) alone() bool {
	return len(t.holders) == 1 && !t.Crowded()
}

// Enter waits for the turn of the holder. The caller calls leave after the work. Enter fails only
// if ctx ends. A turn of more than a second ends by itself.
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

// begin gives a place to the first that waits of a holder. The caller holds mu.
func (t *Turns[K]) begin(h *turnHolder[K]) {
	t.free--
	h.taken++
	close(h.waiting.Remove(h.waiting.Front()).(chan struct{})) //nolint:errcheck // the list holds nothing else
}

// leave returns what ends the work of a holder that begins now.
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

// giveBack gives a place back to its holder. The caller holds mu.
func (t *Turns[K]) giveBack(h *turnHolder[K]) {
	h.taken--
	t.settle(h)
	t.admit()
}

// settle keeps a holder among the ready ones if and only if it may begin, and forgets one that has
// nothing. The caller holds mu.
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

// admit fills the free places, one of each holder at a time. The caller holds mu.
func (t *Turns[K]) admit() {
	for t.free > 0 && t.ready.Len() > 0 {
		h := t.ready.Remove(t.ready.Front()).(*turnHolder[K]) //nolint:errcheck // the list holds nothing else
		h.in = nil
		t.begin(h)
		t.settle(h)
	}
}

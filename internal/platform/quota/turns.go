package quota

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Turns shares the cores of a machine among holders of long work. If only one holder is active, its work does not wait.
// Otherwise all long work together gets half of the cores, at least one, and each holder at most a quarter. Holders get
// turns alternately. If a quarter is less than one core, a holder must pause after each turn. Turns is safe for
// concurrent use.
type Turns[K comparable] struct {
	clock func() time.Time
	each  int     // maximum number of concurrent turns of one holder
	rest  float64 // pause of a holder after a turn, as a multiple of the length of the turn

	last  atomic.Pointer[K]         // the holder that worked last
	mixed atomic.Pointer[time.Time] // time of the last change of last to another holder

	mu      sync.Mutex
	free    int // free places; negative if a single holder uses more places than there are
	holders map[K]*turnHolder[K]
	ready   list.List // of *turnHolder[K] that have waiting work and may begin it
}

// turnHolder is a holder whose long work runs, waits, or pauses after a turn.
type turnHolder[K comparable] struct {
	key     K
	taken   int           // places of running work and of pauses
	waiting list.List     // of chan struct{}; closed when the turn begins
	in      *list.Element // position in ready; nil if the holder is not in ready
}

const (
	// together is the period in which work of two holders counts as concurrent. If only one holder has worked for this
	// long, it counts as alone.
	together = time.Second
	// longest is the maximum length of a turn. Work that takes longer probably waits for a peer or the database, not
	// for a core. It continues without a turn.
	longest = time.Second
)

// NewTurns returns a Turns for the given number of cores.
func NewTurns[K comparable](cores int, clock func() time.Time) *Turns[K] {
	each := max(1, cores/4)
	return &Turns[K]{
		clock: clock, each: each, rest: math.Max(0, 4*float64(each)/float64(cores)-1),
		free: max(1, cores/2), holders: map[K]*turnHolder[K]{},
	}
}

// Worked records that a holder has worked. Call it for short work, too.
func (t *Turns[K]) Worked(holder K) {
	if last := t.last.Load(); last == nil || *last != holder {
		now := holder // only this copy is allocated on the heap
		if t.last.Store(&now); last != nil {
			at := t.clock()
			t.mixed.Store(&at)
		}
	}
}

// Crowded reports whether more than one holder has worked within the last second.
func (t *Turns[K]) Crowded() bool {
	mixed := t.mixed.Load()
	return mixed != nil && t.clock().Sub(*mixed) <= together
}

// alone reports whether only one holder is active: no other holder has worked recently, and at most one holder has long
// work that waits, runs or pauses. The caller holds mu.
func (t *Turns[K]) alone() bool {
	return len(t.holders) == 1 && !t.Crowded()
}

// Enter waits for a turn of the holder. The caller must call leave after the work. Enter fails only if ctx ends. A turn
// ends after one second even without leave.
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

// begin starts a turn of a holder for the oldest of its waiting work. The caller holds mu.
func (t *Turns[K]) begin(h *turnHolder[K]) {
	t.free--
	h.taken++
	close(h.waiting.Remove(h.waiting.Front()).(chan struct{})) //nolint:errcheck // the list holds nothing else
}

// leave returns the function that ends a turn which begins now.
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

// giveBack releases the place of a turn or a pause. The caller holds mu.
func (t *Turns[K]) giveBack(h *turnHolder[K]) {
	h.taken--
	t.settle(h)
	t.admit()
}

// settle adds the holder to ready if the holder may begin a turn, and removes it from ready otherwise. It deletes a
// holder without work. The caller holds mu.
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

// admit gives free places to the holders in ready. The caller holds mu.
func (t *Turns[K]) admit() {
	for t.free > 0 && t.ready.Len() > 0 {
		h := t.ready.Remove(t.ready.Front()).(*turnHolder[K]) //nolint:errcheck // the list holds nothing else
		h.in = nil
		t.begin(h)
		t.settle(h)
	}
}

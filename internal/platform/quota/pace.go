package quota

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"
)

// Pace limits how many requests of one holder begin per second while the cores are busy and other holders are
// at work. The Go scheduler gives all connections the same part of the cores, so without a limit a holder with
// many connections leaves little to the others. All holders have the same limit. It falls while goroutines wait
// too long for a core, and rises again afterwards. Pace is safe for concurrent use.
type Pace[K comparable] struct {
	clock func() time.Time
	lag   func() time.Duration
	least float64 // the lowest limit, which holders that reach it share

	mu      sync.Mutex
	holders map[K]*paced
	limit   float64 // requests per second of one holder; 0 if there is no limit

	last    K             // the holder that came last
	mixed   time.Time     // when it was another one than before
	crowded time.Duration // the time after mixed for which the limit holds

	adjusted time.Time
	watched  bool // serve will be called
}

// paced is a holder that has requests that wait, or some that began lately.
type paced struct {
	begun   int       // requests since the last adjustment
	next    time.Time // when the next one may begin
	waiting list.List // of chan struct{}, closed when they may begin
}

const (
	// adjustment is the time between two adjustments of the limit.
	adjustment = 50 * time.Millisecond
	// mostLag is the mean wait for a core above which the limit falls. A request waits for a core several
	// times: after it was read, and after each answer of the database and of the audit log.
	mostLag = 100 * time.Microsecond
	// An adjustment multiplies the limit by slower or faster.
	slower, faster = 0.8, 1.25
	// leastPerCore is the lowest limit in requests per second for each core.
	leastPerCore = 600
	// turn is the time after which requests that wait are looked at again. A holder may begin the requests of two turns
	// at once.
	turn = 2 * time.Millisecond
	// longestDelay is the longest time that Delay returns.
	longestDelay = time.Second

	// The limit holds for briefly and crowdedLags times the lag after another holder has come. A client that
	// asks now and then therefore costs the others little. The next request of a client that asks again
	// at once waits for a core before the pace knows of it, and must find the limit still in force.
	briefly, crowdedLags, longestCrowded = 10 * time.Millisecond, 20, 500 * time.Millisecond
)

// NewPace returns a pace without a limit. lag returns how long goroutines waited for a core, on average since its
// last call (see Lag).
func NewPace[K comparable](clock func() time.Time, lag func() time.Duration) *Pace[K] {
	return &Pace[K]{clock: clock, lag: lag, least: leastPerCore * float64(runtime.GOMAXPROCS(0)), holders: map[K]*paced{}}
}

// Wait waits until a request of the holder may begin, and reports whether it had to wait. It fails only if ctx
// ends.
func (p *Pace[K]) Wait(ctx context.Context, holder K) (waited bool, err error) {
	p.mu.Lock()
	h, now := p.arrived(holder)
	if h.waiting.Len() == 0 && p.begins(h, now) {
		p.mu.Unlock()
		return false, nil
	}
	begin := make(chan struct{})
	waiting := h.waiting.PushBack(begin)
	p.watch()
	p.mu.Unlock()
	// A request that may begin and whose ctx ends at the same time has used its part of the limit.
	return true, await(ctx, begin, &p.mu, func() {}, func() { h.waiting.Remove(waiting) })
}

// Delay counts a request of a holder that begins in any case, and uses as much of the limit as weight others. It
// returns how much later the client may send its next request.
func (p *Pace[K]) Delay(holder K, weight int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, now := p.arrived(holder)
	h.begun++
	if !p.limited(now) {
		return 0
	}
	p.book(h, now, weight)
	return min(max(0, h.next.Sub(now)), longestDelay)
}

// arrived notes a request of a holder. The caller holds mu.
func (p *Pace[K]) arrived(holder K) (*paced, time.Time) {
	now := p.clock()
	h := p.holders[holder]
	if h == nil {
		h = &paced{}
		p.holders[holder] = h
	}
	if holder != p.last {
		p.last, p.mixed = holder, now
	}
	p.measure(now)
	return h, now
}

// begins reports whether the next request of a holder may begin, and counts it. The caller holds mu.
func (p *Pace[K]) begins(h *paced, now time.Time) bool {
	if p.limited(now) {
		if wait := h.next.Sub(now); 0 < wait && wait <= p.each() {
			return false
		}
		p.book(h, now, 1)
	}
	h.begun++
	return true
}

// book moves the time of the next request. The caller holds mu.
func (p *Pace[K]) book(h *paced, now time.Time, weight int) {
	each := p.each()
	earliest, latest := now.Add(-2*turn-each), now.Add(longestDelay)
	if h.next.Before(earliest) || h.next.After(latest) { // a clock may be set back
		h.next = earliest
	}
	if h.next = h.next.Add(time.Duration(weight) * each); h.next.After(latest) {
		h.next = latest
	}
}

// each is the time from one request of a holder to its next one. The caller holds mu, and there is a limit.
func (p *Pace[K]) each() time.Duration { return time.Duration(float64(time.Second) / p.limit) }

// limited reports whether there is a limit that holds. The caller holds mu.
func (p *Pace[K]) limited(now time.Time) bool { return p.limit > 0 && p.isCrowded(now) }

// isCrowded reports whether several holders are at work. The caller holds mu.
func (p *Pace[K]) isCrowded(now time.Time) bool {
	since := now.Sub(p.mixed)
	return since >= 0 && since <= p.crowded
}

// watch has serve called while requests wait. The caller holds mu.
func (p *Pace[K]) watch() {
	if !p.watched {
		p.watched = true
		time.AfterFunc(turn, p.serve)
	}
}

// serve lets requests begin that may.
func (p *Pace[K]) serve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.measure(now)
	p.watched = false
	wait := 0 // holders
	for _, h := range p.holders {
		for h.waiting.Len() > 0 && p.begins(h, now) {
			close(h.waiting.Remove(h.waiting.Front()).(chan struct{})) //nolint:errcheck // the list holds nothing else
		}
		if h.waiting.Len() > 0 {
			wait++
		}
	}
	if wait > 0 {
		p.watch()
	}
	if wait > 1 {
		p.mixed = now
	}
}

// measure measures how busy the cores are, if it is time, and adjusts the limit. The caller holds mu.
func (p *Pace[K]) measure(now time.Time) {
	took := now.Sub(p.adjusted)
	if 0 <= took && took < adjustment {
		return
	}
	p.adjusted = now
	lag := p.lag()
	p.crowded = min(briefly+crowdedLags*lag, longestCrowded)
	fastest, limited := p.forget(now)
	if took < 0 || took > 4*adjustment || !p.isCrowded(now) { // the lag is not one of several holders
		return
	}
	p.adjust(lag, float64(fastest)/took.Seconds(), limited)
}

// forget forgets holders without requests. It returns how many requests of the fastest one began since the last
// call, and how many holders have reached the limit. The caller holds mu.
func (p *Pace[K]) forget(now time.Time) (fastest, limited int) {
	for key, h := range p.holders {
		switch ahead := h.next.Sub(now); {
		case h.waiting.Len() > 0 || ahead > adjustment && ahead <= longestDelay:
			limited++
		case h.begun == 0 && key != p.last:
			delete(p.holders, key)
		}
		fastest = max(fastest, h.begun)
		h.begun = 0
	}
	return fastest, limited
}

// adjust sets the limit after such a lag. fastest is the rate of the fastest holder. The caller holds mu.
func (p *Pace[K]) adjust(lag time.Duration, fastest float64, limited int) {
	least := p.least / float64(max(1, limited))
	switch {
	case lag > mostLag && p.limit == 0:
		p.limit = max(least, fastest)
	case lag > mostLag:
		p.limit = max(least, p.limit*slower)
	case p.limit*faster > 2*fastest: // it limits nobody
		p.limit = 0
	default:
		p.limit *= faster
	}
}

// Waiting returns how many requests wait.
func (p *Pace[K]) Waiting() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holders {
		n += int64(h.waiting.Len())
	}
	return n
}

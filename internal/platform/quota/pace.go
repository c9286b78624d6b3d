package quota

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"
)

// Pace limits how many requests of one holder begin per second while the cores are busy and a holder with few
// requests is at work. The Go scheduler gives all connections the same part of the cores, so without a limit a holder
// with many connections leaves little to one with few. All holders have the same limit. It falls while goroutines wait
// too long for a core, and rises again afterwards. Pace is safe for concurrent use.
type Pace[K comparable] struct {
	clock func() time.Time
	lag   func() time.Duration
	least float64 // the lowest limit, which holders without few requests share

	mu      sync.Mutex
	holders map[K]*paced
	waiting map[*paced]bool // holders with requests that wait
	fastest int             // the largest last of a holder
	limit   float64         // requests per second of one holder; 0 if there is no limit
	lifted  bool            // there will not be a limit again

	crowd   time.Time     // when a holder with few requests came
	crowded time.Duration // the time after crowd for which the limit holds

	adjusted time.Time
	served   time.Time // the last call of serve, if watched
	watched  bool      // serve will be called
}

// paced is a holder with requests that wait, or with requests in the last second.
type paced struct {
	begun int       // requests since the last adjustment
	last  int       // requests in the time before, and those that waited at its end
	next  time.Time // when the next one may begin
	line  list.List // of chan struct{}, closed when a request may begin
}

const (
	// adjustment is the time between two adjustments of the limit.
	adjustment = 50 * time.Millisecond
	// mostLag is the mean wait for a core above which the limit falls. A request waits for a core several
	// times: after it was read, and after each response of the database and of the audit log.
	mostLag = 100 * time.Microsecond
	// An adjustment multiplies the limit by slower or faster.
	slower, faster = 0.8, 1.25
	// few divides the number of requests of the fastest holder. A holder with fewer requests has few.
	few = 2
	// leastEach is the lowest limit in requests per second, if many holders share the lowest limit.
	leastEach = 50
	// turn is the time after which serve is called again. A holder may begin the requests of two turns at once.
	turn = 2 * time.Millisecond
	// latestNext is longer than any delay. A next request that is later shows that the clock was set back.
	latestNext = 10 * time.Second

	// The limit holds for briefly plus crowdedLags times the lag after a holder with few requests came. So a client
	// with two requests a second reduces the rate of others only briefly. A client that sends the next request after
	// each response waits for a core before the pace knows of the request. The limit must still hold then.
	briefly, crowdedLags, longestCrowded = 10 * time.Millisecond, 20, 500 * time.Millisecond
)

// NewPace returns a pace without a limit. lag returns how long goroutines waited for a core, on average since its
// last call (see Lag). leastPerCore is the lowest limit in requests per second and core.
func NewPace[K comparable](clock func() time.Time, lag func() time.Duration, leastPerCore float64) *Pace[K] {
	return &Pace[K]{
		clock: clock, lag: lag, least: leastPerCore * float64(runtime.GOMAXPROCS(0)),
		holders: map[K]*paced{}, waiting: map[*paced]bool{},
	}
}

// Wait waits until a request of the holder may begin, and reports whether it had to wait. It fails only if ctx
// ends.
func (p *Pace[K]) Wait(ctx context.Context, holder K) (waited bool, err error) {
	p.mu.Lock()
	h, now := p.arrived(holder)
	if p.hasFew(h) {
		p.crowd = now
	}
	if h.line.Len() == 0 && p.begins(h, now) {
		p.mu.Unlock()
		return false, nil
	}
	begin := make(chan struct{})
	at := h.line.PushBack(begin)
	p.waiting[h] = true
	p.watch(now)
	p.mu.Unlock()
	// A request that may begin and whose ctx ends at the same time has used its part of the limit.
	return true, await(ctx, begin, &p.mu, func() {}, func() { p.left(h, at) })
}

// Delay counts a request of a holder that begins in any case. It returns how much later the holder may begin
// its next request, at most longest.
func (p *Pace[K]) Delay(holder K, longest time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, now := p.arrived(holder)
	h.begun++
	if !p.limited(now) {
		return 0
	}
	p.book(h, now)
	if latest := now.Add(longest); h.next.After(latest) {
		h.next = latest
	}
	return max(0, h.next.Sub(now))
}

// Crowd makes the limit hold for a short time, as if a holder with few requests had come.
func (p *Pace[K]) Crowd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crowd = p.clock()
}

// Lift ends the limit permanently. Waiting requests begin.
func (p *Pace[K]) Lift() {
	p.mu.Lock()
	p.lifted = true
	p.mu.Unlock()
	p.serve()
}

// arrived records a request of a holder. The caller holds mu.
func (p *Pace[K]) arrived(holder K) (*paced, time.Time) {
	now := p.clock()
	p.measure(now)
	h := p.holders[holder]
	if h == nil {
		h = &paced{}
		p.holders[holder] = h
	}
	return h, now
}

// hasFew reports whether a holder has few requests. The caller holds mu.
func (p *Pace[K]) hasFew(h *paced) bool { return few*h.last < p.fastest }

// begins reports whether the next request of a holder may begin, and counts it. The caller holds mu.
func (p *Pace[K]) begins(h *paced, now time.Time) bool {
	if p.limited(now) {
		if each := p.each(); h.next.After(now) {
			if h.next.Sub(now) > each { // the limit has risen, or the clock was set back
				h.next = now.Add(each)
			}
			return false
		}
		p.book(h, now)
	}
	h.begun++
	return true
}

// book moves the time of the next request of a holder. The caller holds mu.
func (p *Pace[K]) book(h *paced, now time.Time) {
	each := p.each()
	if h.next.Sub(now) > latestNext { // the clock was set back
		h.next = now
	}
	credit := 2 * turn
	if p.watched { // serve is late if the cores are busy
		credit = max(credit, min(now.Sub(p.served), adjustment))
	}
	if earliest := now.Add(-credit - each); h.next.Before(earliest) {
		h.next = earliest
	}
	h.next = h.next.Add(each)
}

// each is the time from one request of a holder to its next one. The caller holds mu, and there is a limit.
func (p *Pace[K]) each() time.Duration { return time.Duration(float64(time.Second) / p.limit) }

// limited reports whether there is a limit that holds. The caller holds mu.
func (p *Pace[K]) limited(now time.Time) bool { return p.limit > 0 && !p.lifted && p.isCrowded(now) }

// isCrowded reports whether a holder with few requests is at work. The caller holds mu.
func (p *Pace[K]) isCrowded(now time.Time) bool {
	since := now.Sub(p.crowd)
	return since >= 0 && since <= p.crowded
}

// watch schedules a call of serve. The caller holds mu.
func (p *Pace[K]) watch(now time.Time) {
	if !p.watched {
		p.watched, p.served = true, now
		time.AfterFunc(turn, p.serve)
	}
}

// serve starts the waiting requests that may begin.
func (p *Pace[K]) serve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.measure(now)
	for h := range p.waiting {
		if p.hasFew(h) {
			p.crowd = now
		}
		for first := h.line.Front(); first != nil && p.begins(h, now); first = h.line.Front() {
			close(first.Value.(chan struct{})) //nolint:errcheck // the list holds nothing else
			p.left(h, first)
		}
	}
	if p.watched = false; len(p.waiting) > 0 {
		p.watch(now)
	}
}

// left removes a request that no longer waits. The caller holds mu.
func (p *Pace[K]) left(h *paced, at *list.Element) {
	if h.line.Remove(at); h.line.Len() == 0 {
		delete(p.waiting, h)
	}
}

// measure measures how busy the cores are, if it is time, and adjusts the limit. The caller holds mu.
func (p *Pace[K]) measure(now time.Time) {
	took := now.Sub(p.adjusted)
	if 0 <= took && took < adjustment {
		return
	}
	p.adjusted, p.fastest = now, 0
	lag, most, busy := p.lag(), 0, 0
	p.crowded = min(briefly+crowdedLags*lag, longestCrowded)
	for key, h := range p.holders {
		if h.begun == 0 && h.line.Len() == 0 && !h.next.After(now) {
			delete(p.holders, key)
			continue
		}
		most = max(most, h.begun)
		h.last, h.begun = h.begun+h.line.Len(), 0
		p.fastest = max(p.fastest, h.last)
	}
	for _, h := range p.holders {
		if !p.hasFew(h) {
			busy++
		}
	}
	if 0 <= took && took <= 4*adjustment && p.isCrowded(now) { // otherwise the lag is of another time
		p.adjust(lag, float64(most)/took.Seconds(), busy)
	}
}

// adjust sets the limit after the given lag. fastest is the rate of the fastest holder. busy is the number of holders
// with many requests. The caller holds mu.
func (p *Pace[K]) adjust(lag time.Duration, fastest float64, busy int) {
	least := max(leastEach, p.least/float64(max(1, busy)))
	switch {
	case lag > mostLag && p.limit == 0:
		p.limit = max(least, fastest)
	case lag > mostLag:
		p.limit = max(least, p.limit*slower)
	case p.limit*faster > 2*fastest: // it limits no holder
		p.limit = 0
	default:
		p.limit *= faster
	}
}

// Waiting returns the number of waiting requests.
func (p *Pace[K]) Waiting() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for h := range p.waiting {
		n += int64(h.line.Len())
	}
	return n
}

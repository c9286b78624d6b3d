package quota

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"
)

// Pace limits how many requests of one holder begin per second. The limit holds while the cores are busy and a holder
// with few requests is active. The Go scheduler gives all connections the same part of the cores. Without a limit, a
// holder with many connections would leave little to a holder with few connections. All holders have the same limit. It
// falls while goroutines wait too long for a core, and rises when they wait less. Pace is safe for concurrent use.
type Pace[K comparable] struct {
	clock func() time.Time
	lag   func() time.Duration
	least float64 // the lowest limit, divided among the holders with many requests

	mu      sync.Mutex
	holders map[K]*paced
	waiting map[*paced]bool // holders with requests that wait
	fastest int             // the maximum of paced.last of all holders
	limit   float64         // requests per second of one holder; 0 if there is no limit
	lifted  bool            // the limit has ended permanently

	crowd   time.Time     // time of the last request of a holder with few requests
	crowded time.Duration // how long after crowd the limit holds

	adjusted time.Time
	served   time.Time // when serve was last scheduled; used if watched is true
	watched  bool      // a call of serve is scheduled
}

// paced is a holder with requests that wait, or with requests in the last second.
type paced struct {
	begun int       // requests since the last adjustment
	last  int       // requests between the last two adjustments, and those that waited at the last one
	next  time.Time // when the next request may begin
	line  list.List // of chan struct{}, closed when a request may begin
}

const (
	// adjustment is the time between two adjustments of the limit.
	adjustment = 50 * time.Millisecond
	// mostLag is the mean wait for a core above which the limit falls. A request waits for a core several times: after
	// the server has read it, and after each response of the database and of the audit log.
	mostLag = 100 * time.Microsecond
	// An adjustment multiplies the limit by slower or faster.
	slower, faster = 0.8, 1.25
	// few is the divisor that defines few requests: a holder has few if it has less than 1/few of the requests of the
	// fastest holder.
	few = 2
	// leastEach is the lowest limit of one holder in requests per second. It applies if many holders divide Pace.least.
	leastEach = 50
	// turn is the time between two calls of serve. A holder may begin the requests of two turns at once.
	turn = 2 * time.Millisecond
	// latestNext is longer than any delay. If the next request of a holder is later than that, the clock was set back.
	latestNext = 10 * time.Second

	// After a request of a holder with few requests, the limit holds for briefly plus crowdedLags times the lag, at
	// most longestCrowded. So a client with two requests a second reduces the rate of others only briefly. A client
	// that sends the next request after each response first waits for a core. The limit must still hold when this
	// request arrives.
	briefly, crowdedLags, longestCrowded = 10 * time.Millisecond, 20, 500 * time.Millisecond
)

// NewPace returns a pace without a limit. lag returns the mean time that goroutines waited for a core since the last
// call of lag (see Lag). leastPerCore is the lowest limit in requests per second and core.
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
	// If ctx ends when the request may already begin, the request still counts for the limit.
	return true, await(ctx, begin, &p.mu, func() {}, func() { p.left(h, at) })
}

// Delay counts a request of a holder that begins immediately. It returns the time until the holder may begin its next
// request, at most longest.
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

// Crowd makes the limit hold for a short time, as if a holder with few requests had sent a request.
func (p *Pace[K]) Crowd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crowd = p.clock()
}

// Lift ends the limit permanently. Waiting requests begin immediately.
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

// book sets the time at which the next request of a holder may begin. The caller holds mu.
func (p *Pace[K]) book(h *paced, now time.Time) {
	each := p.each()
	if h.next.Sub(now) > latestNext { // the clock was set back
		h.next = now
	}
	credit := 2 * turn
	if p.watched { // if the cores are busy, serve runs late
		credit = max(credit, min(now.Sub(p.served), adjustment))
	}
	if earliest := now.Add(-credit - each); h.next.Before(earliest) {
		h.next = earliest
	}
	h.next = h.next.Add(each)
}

// each is the minimum time between two requests of a holder. The caller holds mu, and there is a limit.
func (p *Pace[K]) each() time.Duration { return time.Duration(float64(time.Second) / p.limit) }

// limited reports whether there is a limit and it holds now. The caller holds mu.
func (p *Pace[K]) limited(now time.Time) bool { return p.limit > 0 && !p.lifted && p.isCrowded(now) }

// isCrowded reports whether a holder with few requests was active recently. The caller holds mu.
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

// left removes a request that no longer waits, because it begins or its context has ended. The caller holds mu.
func (p *Pace[K]) left(h *paced, at *list.Element) {
	if h.line.Remove(at); h.line.Len() == 0 {
		delete(p.waiting, h)
	}
}

// measure adjusts the limit to the measured lag if the last adjustment is old enough. The caller holds mu.
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
	if 0 <= took && took <= 4*adjustment && p.isCrowded(now) { // otherwise the lag was measured over another period
		p.adjust(lag, float64(most)/took.Seconds(), busy)
	}
}

// adjust sets the limit for the measured lag. fastest is the rate of the fastest holder. busy is the number of holders
// with many requests. The caller holds mu.
func (p *Pace[K]) adjust(lag time.Duration, fastest float64, busy int) {
	least := max(leastEach, p.least/float64(max(1, busy)))
	switch {
	case lag > mostLag && p.limit == 0:
		p.limit = max(least, fastest)
	case lag > mostLag:
		p.limit = max(least, p.limit*slower)
	case p.limit*faster > 2*fastest: // the limit affects no holder
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

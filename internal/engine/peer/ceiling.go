package peer

import (
	"context"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of calls in progress. A call may occupy memory of one stream window, even if its message never ends. gRPC lets
// a peer send a full stream window before the server reads any of it. gRPC reopens the window of the connection
// immediately.
const (
	maxPeerCalls = maxInFlight // per peer: one process of a peer makes at most this number
	maxAllCalls  = 512
	// maxRefused is the maximum number of refused calls of one peer that gRPC remembers. A refused call takes a few
	// hundred bytes until the deadline that the peer sent.
	maxRefused = 32768
)

// callLimiter counts the calls of peers in progress, from the arrival of their headers on. It refuses calls beyond the
// limits.
type callLimiter struct {
	perPeer, inAll, refused int // limits

	mu    sync.Mutex
	all   int
	peers map[keyserver.SystemID]*peerCalls
}

type peerCalls struct{ calls, refused int }

func newCallLimiter() *callLimiter {
	return &callLimiter{perPeer: maxPeerCalls, inAll: maxAllCalls, refused: maxRefused, peers: map[keyserver.SystemID]*peerCalls{}}
}

// place is the slot of one call in progress. It is released when both the stream and the work on the call have ended,
// because the work continues after a peer disconnects.
type place struct {
	limiter *callLimiter
	peer    keyserver.SystemID
	holders int // stream and work that have not ended; guarded by limiter.mu
	// requestID is the request id that the call contains. It is empty until the call is read, and not validated.
	requestID string
}

// enter takes a place for a call. ctx is the context of its stream. enter fails if a limit is reached.
func (c *callLimiter) enter(ctx context.Context, peer keyserver.SystemID) (*place, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(peer)
	switch {
	case of.calls >= c.perPeer:
		c.refuse(ctx, peer, of)
		return nil, tooMany("%d calls of the peer %d are in progress, the limit per peer; try again", of.calls, peer)
	case c.all >= c.inAll:
		c.refuse(ctx, peer, of)
		return nil, tooMany("%d calls of peers are in progress, the limit; try again", c.all)
	}
	of.calls++
	c.all++
	return &place{limiter: c, peer: peer, holders: 1}, nil
}

func tooMany(format string, args ...any) error {
	return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second, format, args...).Audited(fault.ReasonLimit)
}

func (c *callLimiter) of(peer keyserver.SystemID) *peerCalls {
	of, ok := c.peers[peer]
	if !ok {
		of = &peerCalls{}
		c.peers[peer] = of
	}
	return of
}

// refuse counts a refused call until its deadline, because gRPC remembers it until then. gRPC does not remember a call
// without a deadline.
func (c *callLimiter) refuse(ctx context.Context, peer keyserver.SystemID, of *peerCalls) {
	if _, ok := ctx.Deadline(); !ok {
		c.forget(peer, of)
		return
	}
	of.refused++
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		of.refused--
		c.forget(peer, of)
	})
}

// flooded reports whether gRPC remembers more than the maximum number of refused calls of a peer.
func (c *callLimiter) flooded(peer keyserver.SystemID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, ok := c.peers[peer]
	return ok && of.refused > c.refused
}

// forget deletes the counters of a peer that has no calls in progress and no remembered refused calls.
func (c *callLimiter) forget(peer keyserver.SystemID, of *peerCalls) {
	if of.calls == 0 && of.refused == 0 {
		delete(c.peers, peer)
	}
}

// hold keeps the place occupied during the work on the call. It reports false if the stream has already ended.
func (p *place) hold() bool {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	if p.holders == 0 {
		return false
	}
	p.holders++
	return true
}

// leave must be called at the end of the stream and, after hold, at the end of the work. The last call releases the
// place.
func (p *place) leave() {
	c := p.limiter
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.holders--; p.holders > 0 {
		return
	}
	of := c.of(p.peer)
	of.calls--
	c.all--
	c.forget(p.peer, of)
}

type placeKey struct{}

func withPlace(ctx context.Context, p *place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}

// placeOf returns the place of a call, or nil if the connection does not belong to a peer.
func placeOf(ctx context.Context) *place {
	p, _ := ctx.Value(placeKey{}).(*place)
	return p
}

// work keeps the place of a call occupied until done is called. It fails if the stream has already ended.
func work(ctx context.Context) (done func(), err error) {
	switch p := placeOf(ctx); {
	case p == nil: // not from a peer: the handler refuses the call later
		return func() {}, nil
	case !p.hold():
		return nil, context.Canceled
	default:
		return p.leave, nil
	}
}

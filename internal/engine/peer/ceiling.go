package peer

import (
	"context"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Bounds of the calls that are under way. Each may hold a stream's window of
// memory, even if its message never ends: so much may be sent before anybody
// reads, and gRPC gives the connection's window back at once.
const (
	maxPeerCalls = maxInFlight // of one peer: what one process of it makes
	maxAllCalls  = 512
	// maxRefused is how many refused calls of one peer gRPC may remember: each
	// takes a few hundred bytes until the deadline that came with it.
	maxRefused = 32768
)

// ceiling counts the calls that peers have under way, from the moment that
// their headers are there, and refuses those beyond the bounds.
type ceiling struct {
	perPeer, inAll, refused int // the bounds

	mu    sync.Mutex
	all   int
	peers map[keyserver.SystemID]*peerCalls
}

type peerCalls struct{ calls, refused int }

func newCeiling() *ceiling {
	return &ceiling{perPeer: maxPeerCalls, inAll: maxAllCalls, refused: maxRefused, peers: map[keyserver.SystemID]*peerCalls{}}
}

// place is one call among those under way. It is given back once neither its
// stream nor the work on it holds it: a peer that goes away does not end what
// is done for it.
type place struct {
	ceiling *ceiling
	peer    keyserver.SystemID
	holders int // guarded by ceiling.mu
	// requestID is what the call says of itself, once it is read; it may be
	// anything.
	requestID string
}

// enter takes a place for a call. ctx is that of its stream.
func (c *ceiling) enter(ctx context.Context, peer keyserver.SystemID) (*place, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(peer)
	switch {
	case of.calls >= c.perPeer:
		c.refuse(ctx, peer, of)
		return nil, tooMany("%d calls of the peer %d are under way, as many as it may have; try again", of.calls, peer)
	case c.all >= c.inAll:
		c.refuse(ctx, peer, of)
		return nil, tooMany("%d calls of peers are under way, as many as there may be; try again", c.all)
	}
	of.calls++
	c.all++
	return &place{ceiling: c, peer: peer, holders: 1}, nil
}

func tooMany(format string, args ...any) error {
	return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second, format, args...).Audited(fault.ReasonLimit)
}

func (c *ceiling) of(peer keyserver.SystemID) *peerCalls {
	of, ok := c.peers[peer]
	if !ok {
		of = &peerCalls{}
		c.peers[peer] = of
	}
	return of
}

// refuse counts a refused call for as long as gRPC remembers it, which is not
// at all where it has no deadline.
func (c *ceiling) refuse(ctx context.Context, peer keyserver.SystemID, of *peerCalls) {
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

// flooded reports whether a peer goes on although it was refused.
func (c *ceiling) flooded(peer keyserver.SystemID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, ok := c.peers[peer]
	return ok && of.refused > c.refused
}

// forget drops the count of a peer that has nothing under way.
func (c *ceiling) forget(peer keyserver.SystemID, of *peerCalls) {
	if of.calls == 0 && of.refused == 0 {
		delete(c.peers, peer)
	}
}

// hold keeps the place while somebody works on the call. It reports false where
// the stream has ended before.
func (p *place) hold() bool {
	p.ceiling.mu.Lock()
	defer p.ceiling.mu.Unlock()
	if p.holders == 0 {
		return false
	}
	p.holders++
	return true
}

// leave is the end of the stream, or of the work on it.
func (p *place) leave() {
	c := p.ceiling
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

// placeOf is the place of a call, nil where its connection is not one of a peer.
func placeOf(ctx context.Context) *place {
	p, _ := ctx.Value(placeKey{}).(*place)
	return p
}

// work holds the place of a call while it is worked on.
func work(ctx context.Context) (done func(), err error) {
	switch p := placeOf(ctx); {
	case p == nil: // refused where the caller is read
		return func() {}, nil
	case !p.hold():
		return nil, context.Canceled
	default:
		return p.leave, nil
	}
}

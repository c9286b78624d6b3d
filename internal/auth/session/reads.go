package session

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// missPause is how long a read keeps its place if it found no session. It limits the rate of requests with invented
// tokens. A limit of concurrent reads is not enough, because such a request costs more processor time than its read.
const missPause = 5 * time.Millisecond

// readGate limits the concurrent reads of sessions that are not in memory. Networks get places alternately; the
// networks of one IPv6 site (48 bits) count as one network. From.Stranger limits the number of waiting requests.
type readGate struct {
	mu      sync.Mutex
	free    int // number of free places
	waiting quota.FairQueue[netip.Prefix]
}

func newReadGate(places int) *readGate { return &readGate{free: places} }

// enter waits for a place. It fails only if ctx ends. The caller must call leave after the read.
func (g *readGate) enter(ctx context.Context, address string) (leave func(found bool), err error) {
	at, _ := netip.ParseAddr(address) // all requests without an address belong to the zero network
	g.mu.Lock()
	waiting := g.waiting.Join(clientaddr.Site(clientaddr.Network(at)))
	g.admit()
	g.mu.Unlock()
	if err := g.waiting.Wait(ctx, waiting, &g.mu, g.giveBack); err != nil {
		return nil, err
	}
	return g.leave, nil
}

func (g *readGate) leave(found bool) {
	if !found {
		time.AfterFunc(missPause, func() { g.leave(true) })
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.giveBack()
}

// giveBack makes a place free and passes it on. The caller holds mu.
func (g *readGate) giveBack() {
	g.free++
	g.admit()
}

// admit gives free places to waiting requests. The caller holds mu.
func (g *readGate) admit() {
	for g.free > 0 && g.waiting.Len() > 0 {
		g.free--
		g.waiting.Serve()
	}
}

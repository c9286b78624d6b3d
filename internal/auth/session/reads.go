package session

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// missPause is how long a read that found no session keeps its place. It limits the rate of requests with invented
// tokens: such a request costs more processor time than its read, so the limit of concurrent reads does not suffice.
const missPause = 5 * time.Millisecond

// readGate bounds the reads of sessions that are not in memory. Waiting networks are served alternately; the networks
// of one IPv6 site count as one. The places of strangers bound the number of waiting requests.
type readGate struct {
	mu      sync.Mutex
	free    int // places
	waiting quota.FairQueue[netip.Prefix]
}

func newReadGate(places int) *readGate { return &readGate{free: places} }

// enter waits for a place. It fails only if ctx ends. The caller calls leave after the read.
func (g *readGate) enter(ctx context.Context, address string) (leave func(found bool), err error) {
	at, _ := netip.ParseAddr(address) // requests without an address share the zero network
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

// giveBack frees a place. The caller holds mu.
func (g *readGate) giveBack() {
	g.free++
	g.admit()
}

// admit fills the free places. The caller holds mu.
func (g *readGate) admit() {
	for g.free > 0 && g.waiting.Len() > 0 {
		g.free--
		g.waiting.Serve()
	}
}

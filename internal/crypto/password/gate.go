package password

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// DefaultPlaces returns half of the cores, at least one. The other half is for requests in
// sessions and for the network.
func DefaultPlaces() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// mostInRow is how many hashes of non-strangers may begin in a row while a stranger waits.
const mostInRow = 3

// Gate bounds the concurrent hashes of a process. Strangers, which have not shown that they
// know any password, come after the others. While sessions are at work, a pause follows a
// stranger's hash, as long as the hash took. So strangers use at most half of the places'
// time. A nil Gate has no bounds.
type Gate struct {
	worked atomic.Uint64 // requests in sessions

	places int

	mu      sync.Mutex
	free    int // places
	permits int // of strangers; a stranger needs a permit and a place
	inRow   int // hashes of non-strangers that began while a stranger waited

	others, strangers quota.FairQueue[string]
}

// NewGate returns a gate with the given number of places.
func NewGate(places int) *Gate { return &Gate{places: places, free: places, permits: places} }

// Worked tells the gate that a session is at work.
func (g *Gate) Worked() { g.worked.Add(1) }

// Held returns the number of hashes that are running.
func (g *Gate) Held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.places - g.free
}

// Enter waits until the caller may hash. Holders, such as names or networks, are served in
// turns. The caller calls leave after the hash. Enter fails only if ctx ends.
func (g *Gate) Enter(ctx context.Context, holder string, stranger bool) (leave func(), err error) {
	if g == nil {
		return func() {}, ctx.Err()
	}
	queue := &g.others
	if stranger {
		queue = &g.strangers
	}
	g.mu.Lock()
	waiting := queue.Join(holder)
	g.admit()
	g.mu.Unlock()
	if err := queue.Wait(ctx, waiting, &g.mu, func() { g.leave(stranger) }); err != nil {
		return nil, err
	}
	begun, worked := time.Now(), g.worked.Load()
	return func() {
		pause := time.Duration(0)
		if stranger && g.worked.Load() != worked {
			pause = time.Since(begun)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if pause == 0 {
			g.leave(stranger)
			return
		}
		g.leave(false)
		time.AfterFunc(pause, g.permit)
	}, nil
}

// leave frees a place, and a stranger's permit if permit is true. The caller holds mu.
func (g *Gate) leave(permit bool) {
	g.free++
	if permit {
		g.permits++
	}
	g.admit()
}

func (g *Gate) permit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.permits++
	g.admit()
}

// admit fills the free places. The caller holds mu.
func (g *Gate) admit() {
	for g.free > 0 {
		stranger := g.strangers.Len() > 0 && g.permits > 0 && (g.others.Len() == 0 || g.inRow >= mostInRow)
		switch {
		case stranger:
			g.permits--
			g.inRow = 0
			g.begin(&g.strangers)
		case g.others.Len() > 0:
			if g.inRow++; g.strangers.Len() == 0 {
				g.inRow = 0
			}
			g.begin(&g.others)
		default:
			return
		}
	}
}

func (g *Gate) begin(queue *quota.FairQueue[string]) {
	g.free--
	queue.Serve()
}

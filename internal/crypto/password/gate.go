package password

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// DefaultPlaces returns the default number of concurrent hashes: half of the cores, at least one. The other half is for
// requests in sessions and for the network.
func DefaultPlaces() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// mostInRow is the maximum number of hashes for known callers that begin one after another while a stranger waits.
const mostInRow = 3

// Gate limits the concurrent hashes of a process. A stranger is a caller that has not shown that it knows any password;
// all other callers are known. Known callers are served before strangers, but at most mostInRow of them in a row. If
// requests in sessions arrive during the hash of a stranger, the permit of that stranger becomes free only after a
// pause that is as long as its hash. So strangers use at most half of the time of the places. A nil Gate has no limit.
type Gate struct {
	worked atomic.Uint64 // number of requests in sessions

	places int

	mu      sync.Mutex
	free    int // free places
	permits int // free permits; a stranger needs a permit and a place
	inRow   int // hashes of known callers that began while a stranger waited

	others, strangers quota.FairQueue[string]
}

// NewGate returns a gate with the given number of places.
func NewGate(places int) *Gate { return &Gate{places: places, free: places, permits: places} }

// Worked records a request in a session.
func (g *Gate) Worked() { g.worked.Add(1) }

// Held returns the number of hashes that are running.
func (g *Gate) Held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.places - g.free
}

// Enter waits until the caller may hash. Holders, such as names or networks, get places alternately. The caller must
// call leave after the hash. Enter fails only if ctx ends.
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

// leave makes a place free, and a permit if permit is true. The caller holds mu.
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

// admit gives free places to waiting callers. The caller holds mu.
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

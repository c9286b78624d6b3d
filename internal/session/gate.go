package session

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/quota"
)

// waitingPerPlace is how many logins may wait for each place. One network has a share of them.
const waitingPerPlace = 16

// loginGate bounds the passwords that are hashed at once, each of which holds
// its whole memory cost and a core. Those who have logged in from where they are
// have places and a queue of their own, which strangers cannot fill.
type loginGate struct {
	strangers, known turnstile
	hashed           atomic.Int64
}

// turnstile lets so many in at once, and so many wait.
type turnstile struct {
	places chan struct{}
	queue  *quota.Quota[string]
}

func newTurnstile(places int) turnstile {
	queue := int64(places * waitingPerPlace)
	return turnstile{make(chan struct{}, places), quota.New[string](queue, quota.Share(queue))}
}

func newLoginGate(most int) *loginGate {
	return &loginGate{strangers: newTurnstile(most), known: newTurnstile(max(1, most/2))}
}

// DefaultMaxLogins is twice the cores.
func DefaultMaxLogins() int { return 2 * runtime.GOMAXPROCS(0) }

// observe shows how full the gate is.
func (g *loginGate) observe(r prometheus.Registerer) {
	if r == nil {
		return
	}
	r.MustRegister(append(slices.Concat(g.strangers.queue.Collectors("loginsOfStrangers"), g.known.queue.Collectors("logins")),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_logins_hashed", Help: "Passwords that are being hashed."},
			func() float64 { return float64(g.hashed.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_logins_waiting", Help: "Logins that wait for their turn to be hashed."},
			func() float64 { return float64(g.strangers.queue.Held() + g.known.queue.Held()) }),
	)...)
}

// enter waits for a place. OVERLOADED where too many wait.
func (g *loginGate) enter(ctx context.Context, l Login) (leave func(), err error) {
	through, from := g.strangers, network(l.Address)
	if l.attempt.known {
		through = g.known
	}
	if through.queue.Take(from, 1) != quota.Taken {
		return nil, fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
			"too many logins wait for their turn (--max-logins), in all or from this address; try again")
	}
	defer through.queue.Return(from, 1)
	select {
	case through.places <- struct{}{}:
		g.hashed.Add(1)
		return func() { g.hashed.Add(-1); <-through.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

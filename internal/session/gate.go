package session

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/password"
	"github.com/keyserver-operator/keyserver-operator/internal/quota"
)

// waitingPerPlace is how many logins may wait for each place. One network, or one known name, has
// a share of them. If all are taken, a newcomer evicts one of the largest holder.
const waitingPerPlace = 128

// loginGate bounds the logins that wait for the password gate. Logins from known addresses
// have a queue of their own, which strangers cannot fill.
type loginGate struct {
	hashes           *password.Gate
	strangers, known *quota.Crowd[string]
}

func newLoginGate(hashes *password.Gate, places int) *loginGate {
	waiting := places * waitingPerPlace
	queue := func() *quota.Crowd[string] { return quota.NewCrowd[string](waiting, quota.Share(waiting), nil) }
	return &loginGate{hashes: hashes, strangers: queue(), known: queue()}
}

// observe shows how full the gate is.
func (g *loginGate) observe(r prometheus.Registerer) {
	if r == nil {
		return
	}
	r.MustRegister(append(slices.Concat(g.strangers.Collectors("loginsOfStrangers"), g.known.Collectors("logins")),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_logins_hashed", Help: "Passwords that are being hashed."},
			func() float64 { return float64(g.hashes.Held()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_logins_waiting", Help: "Logins that wait for their turn to be hashed."},
			func() float64 { return float64(g.strangers.Held() + g.known.Held()) }),
	)...)
}

// enter waits for a place. It fails with OVERLOADED if too many logins wait.
func (g *loginGate) enter(ctx context.Context, l Login) (leave func(), err error) {
	queue, holder := g.strangers, network(l.Address)
	if l.attempt.known { // a known password could be sent from many addresses
		queue, holder = g.known, l.Name
	}
	full := fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
		"too many logins wait for their turn (--max-logins), in all, from this address or for this name; try again")
	err = queue.Wait(ctx, holder, full, func(ctx context.Context) (err error) {
		leave, err = g.hashes.Enter(ctx, holder, !l.attempt.known)
		return err
	})
	return leave, err
}

// enter waits for a place to hash in, and takes the tokens of the login there. It fails with
// OVERLOADED and LOGIN_THROTTLED.
func (m *Manager) enter(ctx context.Context, l Login) (leave func(), err error) {
	if leave, err = m.gate.enter(ctx, l); err != nil {
		return nil, err
	}
	if err = m.throttle.take(ctx, l.attempt); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

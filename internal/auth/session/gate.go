package session

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// Numbers of logins that may wait for each concurrent password hash. One network, or one name that has logged in
// before, may use a share of them. If the queue is full, a new login replaces a login of the network or name that has
// most. The last login in the queue must be served within the time limit of a request. Logins of unknown names have
// half as many places, because one such login takes twice as long.
const (
	knownPerPlace     = 128
	strangersPerPlace = 64
)

// loginGate limits the logins that wait for a password hash. Logins from known addresses have a separate queue, which
// logins from unknown addresses cannot fill.
type loginGate struct {
	hashes           *password.Gate
	strangers, known *quota.Crowd[string]
}

func newLoginGate(hashes *password.Gate, places int) *loginGate {
	queue := func(waiting int) *quota.Crowd[string] {
		return quota.NewCrowd[string](waiting, quota.Share(waiting), nil)
	}
	return &loginGate{hashes: hashes, strangers: queue(places * strangersPerPlace), known: queue(places * knownPerPlace)}
}

func (g *loginGate) observe(r prometheus.Registerer) {
	if r == nil {
		return
	}
	r.MustRegister(append(slices.Concat(g.strangers.Collectors("loginsOfStrangers"), g.known.Collectors("logins")),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_logins_hashed", Help: "Logins whose password is hashed at the moment."},
			func() float64 { return float64(g.hashes.Held()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_logins_waiting", Help: "Logins that wait until their password can be hashed."},
			func() float64 { return float64(g.strangers.Held() + g.known.Held()) }),
	)...)
}

// enter waits for a place. It fails with OVERLOADED if too many logins wait.
func (g *loginGate) enter(ctx context.Context, l Login) (leave func(), err error) {
	queue, holder := g.strangers, site(l.Address)
	if l.attempt.known { // holder is the name, because an attacker with a known password could use many addresses
		queue, holder = g.known, l.Name
	}
	full := fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
		"too many logins are waiting (--max-logins): in total, from this address, or for this name; try again")
	err = queue.Wait(ctx, holder, full, func(ctx context.Context) (err error) {
		leave, err = g.hashes.Enter(ctx, holder, !l.attempt.known)
		return err
	})
	return leave, err
}

// inPlace waits for a place, takes the tokens of the login, and then runs the function hash. It returns OVERLOADED,
// LOGIN_THROTTLED, or the error of hash.
func (m *Manager) inPlace(ctx context.Context, l Login, hash func() error) error {
	leave, err := m.gate.enter(ctx, l)
	if err != nil {
		return err
	}
	defer leave()
	if err = m.throttle.take(ctx, l.attempt); err != nil {
		return err
	}
	return hash()
}

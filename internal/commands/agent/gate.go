package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

// Limits of the pause after a failed login. An unreachable key server may respond again at any moment. A key server
// that rejects a login counts failed logins, so the pause is longer.
const (
	firstPause  = time.Second
	awayPause   = 5 * time.Second
	refusePause = time.Minute
	longest     = 10 * time.Minute // longest Retry-After pause that is accepted
)

// gate limits logins after a failed one. Until the next login is due, requests get the error of the last one.
type gate struct {
	clock  func() time.Time
	logger *slog.Logger
	token  *token

	mu       sync.Mutex
	failures int
	until    time.Time
	why      *refusal // error of the last login; nil if it succeeded
	tried    bool     // there was a login
	reached  bool     // the key server responded to the last request
}

// shut returns the error for requests while no login is allowed, or nil.
func (g *gate) shut() *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why == nil {
		return nil
	}
	wait := g.until.Sub(g.clock())
	if wait <= 0 {
		return nil
	}
	again := *g.why
	return again.later(wait)
}

// passed records that the key server accepted the session.
func (g *gate) passed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reached {
		g.logger.Info("the key server responds and accepts the session")
	}
	g.tried, g.reached, g.why, g.failures = true, true, nil, 0
}

// lost records that the key server does not respond.
func (g *gate) lost(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reached {
		g.logger.Warn("the key server does not respond", "error", err.Error())
	}
	g.tried, g.reached = true, false
}

// failed records a failed login and returns the error for the workload. If several requests waited for the same login,
// it counts only once.
func (g *gate) failed(err error) *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock()
	if g.why != nil && now.Before(g.until) {
		again := *g.why
		return again.later(g.until.Sub(now))
	}
	most := refusePause
	if client.IsUnavailable(err) {
		most = awayPause
		g.why = refuse(unavailable, "the key server does not respond to a login: "+err.Error())
	} else {
		g.why = refuse(loginFailed, g.explain(err))
	}
	pause := min(firstPause<<min(g.failures, 16), most)
	pause = pause/2 + rand.N(pause/2+1) //nolint:gosec // jitter, not a secret
	var e *client.Error
	if errors.As(err, &e) {
		pause = max(pause, min(e.RetryAfter, longest))
	}
	g.failures++
	g.tried, g.reached, g.until = true, false, now.Add(pause)
	g.logger.Warn("the agent has no session", "code", g.why.code, "detail", g.why.detail, "retryIn", pause.Round(time.Millisecond).String())
	again := *g.why
	return again.later(pause)
}

func (g *gate) explain(err error) string {
	if refused(err) {
		return "the key server rejects the token; " + g.token.doubt(g.clock())
	}
	if client.IsCode(err, "PROOF_URI_MISMATCH") {
		return "the key server's own URL differs from --server, so it rejects proofs for --server; give its own URL as --external-url: " + err.Error()
	}
	return err.Error()
}

// ready returns nil if the key server accepted the agent's session at the last request.
func (g *gate) ready() *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.reached:
		return nil
	case g.why != nil:
		again := *g.why
		return again.later(g.until.Sub(g.clock()))
	case g.tried:
		return refuse(unavailable, "the key server does not respond").later(probeEvery)
	default:
		return refuse(unavailable, "the agent has not sent a request to the key server yet").later(probeEvery)
	}
}

// probeEvery is the interval of requests to an unreachable key server.
const probeEvery = time.Second

// systemTries limits how often the system id of the key server is requested.
const systemTries = 10

// watch sends a request at the start. It repeats the request while the key server does not respond. While the system id
// is unknown, it also repeats the request, up to systemTries times.
func (a *Agent) watch(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for tries := 0; ; {
		unknown := a.system.Load() == 0 && tries < systemTries
		if (unknown || a.gate.ready() != nil) && a.gate.shut() == nil {
			session, err := a.client.GetCurrentSession(ctx)
			if ctx.Err() == nil && a.note(err) == nil && a.gate.ready() == nil { // the error is only recorded
				a.system.Store(int64(session.Principal.SystemID))
				tries++
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// note records the result of a request. It returns the error for the workload if the session failed, or nil.
func (a *Agent) note(err error) *refusal {
	var noSession *client.LoginError
	var refused *sessionRefused
	var answered *client.Error
	switch {
	case err == nil:
		a.gate.passed()
		return nil
	case errors.As(err, &noSession):
		return a.gate.failed(noSession.Err)
	case errors.As(err, &refused):
		return a.gate.failed(refused)
	case errors.As(err, &answered) && answered.Status == http.StatusUnauthorized:
		return a.gate.failed(answered)
	case errors.As(err, &answered):
		a.gate.passed()
		return nil
	default:
		a.gate.lost(err)
		return nil
	}
}

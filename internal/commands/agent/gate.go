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

// Bounds of the pause before another login. A key server that is away may return at any moment. A key server
// that rejects the login counts failed logins, so the pause is longer.
const (
	firstPause  = time.Second
	awayPause   = 5 * time.Second
	refusePause = time.Minute
	longest     = 10 * time.Minute // longest pause that a key server may request
)

// gate remembers why there is no session. Until the next try is due, requests get that error and no login is
// sent.
type gate struct {
	clock  func() time.Time
	logger *slog.Logger
	token  *token

	mu       sync.Mutex
	failures int
	until    time.Time
	why      *refusal // error of the last try; nil: it succeeded
	tried    bool     // there was a try
	reached  bool     // the key server responded to the last request
}

// shut returns why there can be no session now, or nil if a login may be tried.
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

// failed records a failed login and returns the error for the workload. Several requests that waited for one
// login get the same error, and it counts once.
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

// probeEvery is how often an unreachable key server is queried again.
const probeEvery = time.Second

// watch queries the key server while it is unknown whether it accepts the session: at the start, and after it
// did not respond.
func (a *Agent) watch(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		if a.gate.ready() != nil && a.gate.shut() == nil {
			_, err := a.client.GetCurrentSession(ctx)
			if ctx.Err() == nil {
				_ = a.note(err) // no request waits for the result
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// note records how a request ended. It returns the error for the workload, or nil if the key server responded.
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

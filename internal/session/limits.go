package session

import (
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
)

// Limits bound what sessions may take. Zero limits take the defaults.
type Limits struct {
	MaxSessions             int // sessions in the store, all replicas together
	MaxSessionsPerPrincipal int // of them, those in which one principal acts
	MaxDerivedSessions      int // sessions that are made from one
	MaxInFlight             int // requests under way in one session
	MaxProofs               int // used proofs that this process remembers
	MaxLogins               int // passwords that are hashed at once
}

// Defaults of Limits.
const (
	DefaultMaxSessions             = 100_000
	DefaultMaxSessionsPerPrincipal = 1000
	DefaultMaxDerivedSessions      = 100
	DefaultMaxInFlight             = 256
	DefaultMaxProofs               = 500_000 // 7,000 requests a second, in 50 MB
)

func (l *Limits) setDefaults() {
	setDefault(&l.MaxSessions, DefaultMaxSessions)
	setDefault(&l.MaxSessionsPerPrincipal, DefaultMaxSessionsPerPrincipal)
	setDefault(&l.MaxDerivedSessions, DefaultMaxDerivedSessions)
	setDefault(&l.MaxInFlight, DefaultMaxInFlight)
	setDefault(&l.MaxProofs, DefaultMaxProofs)
	setDefault(&l.MaxLogins, DefaultMaxLogins())
}

// room refuses a session that would be one too many. What is made from a session
// counts there and not for a principal: whoever holds one session can keep nobody
// from logging in.
func (m *Manager) room(ctx context.Context, now time.Time, who identity) error {
	live, err := m.Store.SessionCount(ctx, now, m.Idle)
	if err != nil {
		return err
	}
	if live >= m.MaxSessions {
		return m.full(fault.ScopeProcess, "the key server holds %d sessions, which is the most it may hold (--max-sessions)", m.MaxSessions)
	}
	if !who.parent.IsZero() {
		made, err := m.Store.SessionCountFrom(ctx, who.parent, now, m.Idle)
		if err == nil && made >= m.MaxDerivedSessions {
			err = m.full(fault.ScopeSession, "%d sessions were made from this one, which is the most that one may have "+
				"(--max-derived-sessions); end some with DELETE /api/sessions/{id}", m.MaxDerivedSessions)
		}
		return err
	}
	own, err := m.Store.SessionCountOf(ctx, who.principal.Ref(), now, m.Idle)
	if err != nil {
		return err
	}
	if own >= m.MaxSessionsPerPrincipal {
		return m.full(fault.ScopeSession, "the principal has %d sessions, which is the most that one may have "+
			"(--max-sessions-per-principal); end some with DELETE /api/sessions/{id}", m.MaxSessionsPerPrincipal)
	}
	return nil
}

// full: room comes when a session ends or has been idle for long enough.
func (m *Manager) full(scope fault.Scope, format string, most int) error {
	return fault.Temporary(fault.SessionLimit, scope, m.Idle/touchPeriods, format, most).Audited(fault.ReasonLimit)
}

// takePlace refuses a request that would be one too many of its session.
func (m *Manager) takePlace(h *held) error {
	if h.inFlight.Add(1) > int64(m.MaxInFlight) {
		h.inFlight.Add(-1)
		return fault.Temporary(fault.RequestLimit, fault.ScopeSession, time.Second,
			"the session has %d requests in flight, which is the most it may have (--max-requests-per-session)", m.MaxInFlight)
	}
	return nil
}

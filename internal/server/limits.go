package server

import (
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi"
	"github.com/keyserver-operator/keyserver-operator/internal/session"
)

// Limits are the ceilings of one process. Whoever meets one is answered 503
// with the scope and when to come back.
type Limits struct {
	session.Limits
	MaxRequests int // at work in the process
	MaxWaiting  int // long polls held open
}

// DefaultLimits are those of serve without flags.
func DefaultLimits() Limits {
	return Limits{
		Limits: session.Limits{
			MaxSessions: session.DefaultMaxSessions, MaxSessionsPerPrincipal: session.DefaultMaxSessionsPerPrincipal,
			MaxInFlight: session.DefaultMaxInFlight, MaxProofs: session.DefaultMaxProofs,
		},
		MaxRequests: httpapi.DefaultMaxInFlight, MaxWaiting: httpapi.DefaultMaxWaiting,
	}
}

func (l Limits) validateLimits() error {
	for _, one := range []struct {
		flag  string
		value int
	}{
		{"--max-sessions", l.MaxSessions}, {"--max-sessions-per-principal", l.MaxSessionsPerPrincipal},
		{"--max-requests-per-session", l.MaxInFlight}, {"--max-proofs", l.MaxProofs},
		{"--max-requests", l.MaxRequests}, {"--max-waiting", l.MaxWaiting},
	} {
		if one.value < 1 {
			return fmt.Errorf("%s is %d; it must be at least 1: there is no value for no limit", one.flag, one.value)
		}
	}
	return nil
}

func (c *Config) validateSessions() error {
	switch {
	case c.SessionIdle < time.Second:
		return fmt.Errorf("--session-idle is %s; it must be at least 1s", c.SessionIdle)
	case c.SessionLifetime < c.SessionIdle:
		return fmt.Errorf("--session-lifetime is %s; it must not be shorter than --session-idle (%s)", c.SessionLifetime, c.SessionIdle)
	case c.ScopedLifetime < time.Second:
		return fmt.Errorf("--scoped-lifetime is %s; it must be at least 1s", c.ScopedLifetime)
	}
	return c.validateLimits()
}

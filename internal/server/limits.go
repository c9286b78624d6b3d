package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/session"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// Limits are the ceilings of one process. Whoever meets one is answered 503
// with the scope and when to come back.
type Limits struct {
	session.Limits
	MaxRequests int // at work in the process
	MaxWaiting  int // long polls held open
	MaxStreams  int // messages that are read while they are worked on

	MaxConnections           int // to the API
	MaxConnectionsPerAddress int
	DatabaseMaxConnections   int // to PostgreSQL
	// Of requests that nobody has shown a session for, or none yet.
	MaxStrangers           int
	MaxStrangersPerAddress int
	// Of messages that come before the name of their key.
	MaxSpoolBytes           int64
	MaxSpoolBytesPerSession int64
}

// Defaults of Limits that are not another package's.
const (
	DefaultMaxConnections           = 4096
	DefaultMaxConnectionsPerAddress = 512
)

// DefaultLimits are those of serve without flags.
func DefaultLimits() Limits {
	return Limits{
		Limits: session.Limits{
			MaxSessions: session.DefaultMaxSessions, MaxSessionsPerPrincipal: session.DefaultMaxSessionsPerPrincipal,
			MaxDerivedSessions: session.DefaultMaxDerivedSessions,
			MaxInFlight:        session.DefaultMaxInFlight, MaxProofs: session.DefaultMaxProofs,
			MaxLogins: session.DefaultMaxLogins(),
		},
		MaxRequests: httpapi.DefaultMaxInFlight, MaxWaiting: httpapi.DefaultMaxWaiting, MaxStreams: httpapi.DefaultMaxStreams,
		MaxConnections: DefaultMaxConnections, MaxConnectionsPerAddress: DefaultMaxConnectionsPerAddress,
		DatabaseMaxConnections: sqlstore.DefaultConnections,
		MaxStrangers:           httpapi.DefaultMaxStrangers, MaxStrangersPerAddress: httpapi.DefaultMaxStrangersPerAddress,
		MaxSpoolBytes: httpapi.DefaultMaxSpoolBytes, MaxSpoolBytesPerSession: httpapi.DefaultMaxSpoolBytesPerSession,
	}
}

func (l Limits) validateLimits() error {
	for flag, value := range map[string]int64{"--max-spool-bytes": l.MaxSpoolBytes, "--max-spool-bytes-per-session": l.MaxSpoolBytesPerSession} {
		if value < keyserver.MaxMessage {
			return fmt.Errorf("%s is %d; it must be at least %d, which is one message", flag, value, keyserver.MaxMessage)
		}
	}
	for _, one := range []struct {
		flag  string
		value int
	}{
		{"--max-sessions", l.MaxSessions}, {"--max-sessions-per-principal", l.MaxSessionsPerPrincipal},
		{"--max-derived-sessions", l.MaxDerivedSessions},
		{"--max-requests-per-session", l.MaxInFlight}, {"--max-proofs", l.MaxProofs}, {"--max-logins", l.MaxLogins},
		{"--max-requests", l.MaxRequests}, {"--max-waiting", l.MaxWaiting}, {"--max-streams", l.MaxStreams},
		{"--max-connections", l.MaxConnections}, {"--max-connections-per-address", l.MaxConnectionsPerAddress},
		{"--max-strangers", l.MaxStrangers}, {"--max-strangers-per-address", l.MaxStrangersPerAddress},
	} {
		if one.value < 1 {
			return fmt.Errorf("%s is %d; it must be at least 1: there is no value for no limit", one.flag, one.value)
		}
	}
	if n := l.DatabaseMaxConnections; n < sqlstore.MinConnections {
		return fmt.Errorf("--database-max-connections is %d; it must be at least %d: for writing, for the audit trail, for one migration or rotation, two for the changes of other replicas, and two to read", n, sqlstore.MinConnections)
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
	case c.RequireProof != "" && !slices.Contains(session.Demands, session.Demand(c.RequireProof)):
		return fmt.Errorf("--require-proof is %q; it must be off, people or all", c.RequireProof)
	}
	return c.validateLimits()
}

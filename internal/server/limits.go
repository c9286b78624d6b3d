package server

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/httpapi"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
)

// Limits contains the limits of one process. A request beyond a limit gets the status 503, with the scope of the limit
// and the time after which to retry.
type Limits struct {
	session.Limits
	MaxRequests int // requests in progress in the process
	MaxWaiting  int // long polls that wait
	MaxStreams  int // messages that are processed while they are read

	MaxConnections           int // to the API
	MaxConnectionsPerAddress int
	DatabaseMaxConnections   int // to PostgreSQL
	// Requests without a session, or whose session id is not checked yet.
	MaxStrangers           int
	MaxStrangersPerAddress int
	// Stored bytes of messages that arrive before the name of their key.
	MaxSpoolBytes           int64
	MaxSpoolBytesPerSession int64
}

// Defaults of Limits that are not defined in another package.
const (
	DefaultMaxConnectionsPerAddress = 512
)

func (l Limits) flags() map[string]int64 {
	return map[string]int64{
		"max-sessions": int64(l.MaxSessions), "max-sessions-per-principal": int64(l.MaxSessionsPerPrincipal), "max-derived-sessions": int64(l.MaxDerivedSessions),
		"max-requests-per-session": int64(l.MaxInFlight), "max-proofs": int64(l.MaxProofs), "max-logins": int64(l.MaxLogins),
		"max-requests": int64(l.MaxRequests), "max-waiting": int64(l.MaxWaiting), "max-streams": int64(l.MaxStreams),
		"max-connections": int64(l.MaxConnections), "max-connections-per-address": int64(l.MaxConnectionsPerAddress),
		"max-strangers": int64(l.MaxStrangers), "max-strangers-per-address": int64(l.MaxStrangersPerAddress),
		"max-spool-bytes": l.MaxSpoolBytes, "max-spool-bytes-per-session": l.MaxSpoolBytesPerSession,
		"database-max-connections": int64(l.DatabaseMaxConnections),
	}
}

// observe registers each limit as a metric, so that a query can compare the usage with the limit.
func (l Limits) observe(r prometheus.Registerer) {
	bounds := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "keyserver_limit", Help: "Limit that a flag sets, by the name of the flag without dashes.",
	}, []string{"flag"})
	for flag, most := range l.flags() {
		bounds.WithLabelValues(flag).Set(float64(most))
	}
	r.MustRegister(bounds)
}

// DefaultLimits returns the limits that serve has by default.
func DefaultLimits() Limits {
	return Limits{
		Limits: session.Limits{
			MaxSessions: session.DefaultMaxSessions, MaxSessionsPerPrincipal: session.DefaultMaxSessionsPerPrincipal,
			MaxDerivedSessions: session.DefaultMaxDerivedSessions,
			MaxInFlight:        session.DefaultMaxInFlight, MaxProofs: session.DefaultMaxProofs,
			MaxLogins: password.DefaultPlaces(),
		},
		MaxRequests: httpapi.DefaultMaxInFlight, MaxWaiting: httpapi.DefaultMaxWaiting, MaxStreams: httpapi.DefaultMaxStreams,
		MaxConnections: httpapi.DefaultMaxConnections, MaxConnectionsPerAddress: DefaultMaxConnectionsPerAddress,
		DatabaseMaxConnections: postgres.DefaultConnections,
		MaxStrangers:           httpapi.DefaultMaxStrangers, MaxStrangersPerAddress: httpapi.DefaultMaxStrangersPerAddress,
		MaxSpoolBytes: httpapi.DefaultMaxSpoolBytes, MaxSpoolBytesPerSession: httpapi.DefaultMaxSpoolBytesPerSession,
	}
}

func (l Limits) validateLimits() error {
	for flag, value := range map[string]int64{"--max-spool-bytes": l.MaxSpoolBytes, "--max-spool-bytes-per-session": l.MaxSpoolBytesPerSession} {
		if value < keyserver.MaxMessage {
			return fmt.Errorf("%s is %d; it must be at least %d, the length of one message", flag, value, keyserver.MaxMessage)
		}
	}
	if n := l.DatabaseMaxConnections; n < postgres.MinConnections {
		return fmt.Errorf("--database-max-connections is %d; it must be at least %d (one to write, one for the audit log, one for a migration or rotation, two for changes of other replicas, two to read)", n, postgres.MinConnections)
	}
	bounds := l.flags()
	for _, flag := range slices.Sorted(maps.Keys(bounds)) {
		if bounds[flag] < 1 {
			return fmt.Errorf("--%s is %d; it must be at least 1; no value turns the limit off", flag, bounds[flag])
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
	case c.RequireProof != "" && !slices.Contains(session.Demands, session.Demand(c.RequireProof)):
		return fmt.Errorf("--require-proof is %q; it must be off, people or all", c.RequireProof)
	}
	return c.validateLimits()
}

package session

import (
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Limits are the limits of sessions. A zero value means the default.
type Limits struct {
	MaxSessions             int // sessions in the store, for all replicas together
	MaxSessionsPerPrincipal int // sessions of one principal that a login opened; derived ones do not count
	MaxDerivedSessions      int // sessions that are derived from one session
	MaxInFlight             int // concurrent requests of one session
	MaxProofs               int // used DPoP proofs in the memory of this process
	MaxLogins               int // concurrent password hashes; default: half of the cores
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
	setDefault(&l.MaxLogins, password.DefaultPlaces())
}

const (
	// fewPlaces is more than the number of logins that can run at the same time on all replicas. If more places are free,
	// a login does not count all sessions again in its transaction, which blocks other writers.
	fewPlaces = 16384
)

// sessionCounts counts sessions in the store, inside or outside a transaction.
type sessionCounts interface {
	SessionCount(ctx context.Context, now time.Time, idle time.Duration) (int, error)
	SessionCountBy(ctx context.Context, p keyserver.PrincipalRef, now time.Time, idle time.Duration) (int, error)
	SessionCountFrom(ctx context.Context, parent keyserver.ID, now time.Time, idle time.Duration) (int, error)
	SessionCountOf(ctx context.Context, p keyserver.PrincipalRef, now time.Time, idle time.Duration) (int, error)
}

// room refuses a session that exceeds the limit of all sessions or a limit of its principal. It returns the number of
// free places.
func (m *Manager) room(ctx context.Context, in sessionCounts, record sessionrows.SessionRecord) (left int, err error) {
	live, err := in.SessionCount(ctx, record.CreatedAt, m.Idle)
	if err != nil {
		return 0, err
	}
	if live >= m.MaxSessions {
		return 0, m.full(fault.ScopeProcess, "session limit of the key server reached (%d, --max-sessions); end unused sessions, or wait until some expire", m.MaxSessions)
	}
	return m.MaxSessions - live, m.ownRoom(ctx, in, record)
}

// ownRoom refuses a session that exceeds a limit of its principal. Sessions that are made from a session count in the
// share of the principal that logged in, but not as its logins. So a stolen session cannot prevent logins of the
// principal.
func (m *Manager) ownRoom(ctx context.Context, in sessionCounts, record sessionrows.SessionRecord) error {
	now, acts, share := record.CreatedAt, record.Principal, quota.Share(m.MaxSessions)
	if !record.Actor.ID.IsZero() {
		acts = record.Actor
	}
	all, err := in.SessionCountBy(ctx, acts, now, m.Idle)
	if err == nil && all >= share {
		err = m.full(fault.ScopeSession, "the principal has %d sessions including derived ones, its share of all sessions "+
			"(a quarter of --max-sessions); end some with DELETE /api/sessions/{id}", share)
	}
	if err != nil {
		return err
	}
	if !record.Parent.IsZero() {
		made, err := in.SessionCountFrom(ctx, record.Parent, now, m.Idle)
		if err == nil && made >= m.MaxDerivedSessions {
			err = m.full(fault.ScopeSession, "this session has %d derived sessions, the limit "+
				"(--max-derived-sessions); end some with DELETE /api/sessions/{id}", m.MaxDerivedSessions)
		}
		return err
	}
	own, err := in.SessionCountOf(ctx, record.Principal, now, m.Idle)
	if err == nil && own >= m.MaxSessionsPerPrincipal {
		err = m.full(fault.ScopeSession, "the principal has %d sessions, the limit "+
			"(--max-sessions-per-principal); end some with DELETE /api/sessions/{id}", m.MaxSessionsPerPrincipal)
	}
	return err
}

// takeRoom does the same as room, in the transaction that stores the session. The parameter left is the earlier result
// of room. These transactions run one after another, so that no limit is exceeded.
func (m *Manager) takeRoom(ctx context.Context, tx *sqlstore.Tx, record sessionrows.SessionRecord, left int) error {
	if left > fewPlaces {
		return m.ownRoom(ctx, tx, record)
	}
	_, err := m.room(ctx, tx, record)
	return err
}

// full returns the error for a reached limit. Its retry time is the interval of housekeeping, because sessions may have
// ended or become idle by then.
func (m *Manager) full(scope fault.Scope, format string, most int) error {
	verdict := quota.FullEach
	if scope == fault.ScopeProcess {
		verdict = quota.FullAll
	}
	m.meter.sessions.Count(verdict)
	return fault.Temporary(fault.SessionLimit, scope, m.Idle/touchPeriods, format, most).Audited(fault.ReasonLimit)
}

// takePlace counts a request of a session. It refuses the request if the session has too many requests in progress.
func (m *Manager) takePlace(h *held) error {
	if h.inFlight.Add(1) > int64(m.MaxInFlight) {
		h.inFlight.Add(-1)
		return fault.Temporary(fault.RequestLimit, fault.ScopeSession, time.Second,
			"the session has %d requests in flight, the limit (--max-requests-per-session); try again", m.MaxInFlight)
	}
	return nil
}

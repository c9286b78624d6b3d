// Package ca manages the key server's own CAs. One CA is active: it issues certificates. The next CA is prepared when
// half of the lifetime of the active CA is over, so that all clients trust it before it issues. A former CA stays
// trusted until it is retired, because its certificates are in use. A link is a certificate for the next CA, signed by
// the former CA, for clients that do not know the next CA yet (ADR 41).
package ca

import (
	"crypto/x509"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// MinPreparedTime is how long a CA is prepared before it becomes active, unless early activation is requested.
	// Other replicas know it within a second. Peers learn it at their next connection, at most some minutes later.
	// Mounted files of trusted CAs contain it within some minutes.
	MinPreparedTime = time.Hour
	// Overlap is the minimum time for which a former CA stays trusted after the next one became active, unless an
	// administrator retires it earlier.
	Overlap = 30 * 24 * time.Hour
	// MaxAuthorities is the maximum number of CAs at one time.
	MaxAuthorities = 6
	// maxLinks is the maximum number of earlier generations for which a CA has links.
	maxLinks = 4
)

// Action is an action on a CA.
type Action string

// Values of Action.
const (
	Prepare  Action = "prepare"
	Activate Action = "activate"
	Retire   Action = "retire"
)

// Step is an action that is due.
type Step struct {
	Action Action       // empty if no step is due
	ID     keyserver.ID // the CA to retire; zero for other actions
}

// Member is a CA with its parsed certificate.
type Member struct {
	keyserver.Authority
	Parsed *x509.Certificate
	Linked []*x509.Certificate // the links
	// InForce reports whether the CA has issued certificates that have not expired. The certificates of this key server
	// itself do not count.
	InForce bool
}

// Due returns the step that is due automatically at now. It returns no step if the active CA has expired. No client
// would trust the next CA then, so administrators have to distribute that CA.
func Due(all []Member, now time.Time) Step {
	active, ok := find(all, keyserver.AuthorityActive)
	if !ok || expired(active, now) {
		return Step{}
	}
	for _, m := range all {
		over := m.State == keyserver.AuthorityRetiring && !m.InForce && !now.Before(m.RetiringAt.Add(Overlap))
		if m.State != keyserver.AuthorityActive && (over || expired(m, now)) {
			return Step{Retire, m.ID}
		}
	}
	prepared, ok := find(all, keyserver.AuthorityPrepared)
	switch {
	case !ok && !now.Before(share(active, 1, 2)) && len(all) < MaxAuthorities:
		return Step{Action: Prepare}
	case ok && !now.Before(share(active, 2, 3)) && (dwelt(prepared, now) || active.Parsed.NotAfter.Sub(now) < MinPreparedTime):
		return Step{Action: Activate}
	}
	return Step{}
}

// MayPrepare returns an error if no further CA may be prepared.
func MayPrepare(all []Member) error {
	if m, ok := find(all, keyserver.AuthorityPrepared); ok {
		return refuse("the authority %s is already prepared; activate it, or retire it before you prepare another one", m.ID.Base64())
	}
	if len(all) >= MaxAuthorities {
		return refuse("there are %d authorities, the limit; retire one first", len(all))
	}
	return nil
}

// MayActivate returns the prepared CA if it may become active. early skips the check that the CA was prepared for
// MinPreparedTime. Clients that trust the active CA can still verify the new CA by its link.
func MayActivate(all []Member, early bool, now time.Time) (Member, error) {
	next, ok := find(all, keyserver.AuthorityPrepared)
	if !ok {
		return next, refuse("no authority is prepared; prepare one first")
	}
	if expired(next, now) {
		return next, refuse("the prepared authority has expired; retire it and prepare another one")
	}
	active, ok := find(all, keyserver.AuthorityActive)
	if ok && !expired(active, now) && !early && !dwelt(next, now) {
		return next, refuse("the authority was prepared at %s, so some clients may not trust it yet; activate it from %s on, or send early",
			next.PreparedAt.UTC().Format(time.RFC3339), next.PreparedAt.Add(MinPreparedTime).UTC().Format(time.RFC3339))
	}
	return next, nil
}

// MayRetire returns the CA with the given id if it may be retired.
func MayRetire(all []Member, id keyserver.ID) (Member, error) {
	i := slices.IndexFunc(all, func(m Member) bool { return m.ID == id })
	switch {
	case i < 0:
		return Member{}, fault.New(fault.NotFound, "no authority has the certificateId %s; list them with GET /api/authority", id.Base64()).Audited(fault.ReasonObjectNotFound)
	case all[i].State == keyserver.AuthorityActive:
		return Member{}, refuse("the authority is the active one; prepare and activate another one before you retire it")
	}
	return all[i], nil
}

func refuse(format string, args ...any) error {
	return fault.New(fault.AuthorityState, format, args...).Audited(fault.ReasonAuthorityState)
}

func find(all []Member, state keyserver.AuthorityState) (Member, bool) {
	i := slices.IndexFunc(all, func(m Member) bool { return m.State == state })
	if i < 0 {
		return Member{}, false
	}
	return all[i], true
}

func expired(m Member, now time.Time) bool { return !now.Before(m.Parsed.NotAfter) }
func dwelt(m Member, now time.Time) bool   { return !now.Before(m.PreparedAt.Add(MinPreparedTime)) }

// share returns the time at which n/d of a CA's lifetime are over.
func share(m Member, n, d int64) time.Time {
	life := int64(m.Parsed.NotAfter.Sub(m.Parsed.NotBefore))
	return m.Parsed.NotBefore.Add(time.Duration(life / d * n))
}

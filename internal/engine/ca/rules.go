// Package ca manages the key server's own CAs, one of which issues certificates at a
// time. The next CA is prepared when the active one has half of its life left, so that
// all clients trust it before it issues. The former CA stays trusted for the certificates
// that it issued until it is retired. A link, signed by the former CA, serves clients
// that do not know the next CA yet (ADR 41).
package ca

import (
	"crypto/x509"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// MinPreparedTime is how long a CA is prepared before it issues, unless early activation is requested. Replicas
	// know the new CA within a second. Peers learn it at their next connection, and they connect every few minutes.
	// Mounted bundles have it within some minutes.
	MinPreparedTime = time.Hour
	// Overlap is how long a CA stays trusted, at least, after the next one became active,
	// unless an administrator retires it.
	Overlap = 30 * 24 * time.Hour
	// MaxAuthorities is the maximum number of CAs at one time.
	MaxAuthorities = 6
	// maxLinks is how many generations the links of a CA reach back.
	maxLinks = 4
)

// Action is an action on a CA.
type Action string

// The actions.
const (
	Prepare  Action = "prepare"
	Activate Action = "activate"
	Retire   Action = "retire"
)

// Step is an action that is due.
type Step struct {
	Action Action       // empty if nothing is due
	ID     keyserver.ID // of the CA to retire
}

// Member is a CA with its parsed certificate.
type Member struct {
	keyserver.Authority
	Parsed *x509.Certificate
	Linked []*x509.Certificate // the parsed links
	// InForce reports whether the CA has issued certificates to others than this key server that have not expired.
	InForce bool
}

// Due returns the step that is due automatically at now. It returns none if the active CA has expired: no client would
// know the next CA, so administrators have to distribute that.
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

// MayActivate returns the CA that may become active. early skips the check that the CA was prepared for
// MinPreparedTime. Clients that trust the active CA can still verify the new one by its link.
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

// MayRetire returns the CA that may be retired.
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

// share returns the time when n/d of a CA's life are over.
func share(m Member, n, d int64) time.Time {
	life := int64(m.Parsed.NotAfter.Sub(m.Parsed.NotBefore))
	return m.Parsed.NotBefore.Add(time.Duration(life / d * n))
}

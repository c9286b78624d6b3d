// Package ca keeps the CAs of a key server's own, of which one issues at a
// time. The next one is prepared while the one before it has half of its life to
// go, so that everybody trusts it before it issues; the one before it is trusted
// for what it issued, until it is retired. A link, signed by the one before, lets
// those go on who have not heard of the next one (ADR 41).
package ca

import (
	"crypto/x509"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// Dwell is how long an authority is prepared before it issues, unless somebody
	// says that it need not be. Replicas know it within a second, peers with the
	// next connection, which they make every few minutes, and mounted bundles
	// within some minutes.
	Dwell = time.Hour
	// Overlap is how long an authority is trusted, at the least, after another one
	// issues, where nobody retires it.
	Overlap = 30 * 24 * time.Hour
	// Most is how many authorities there may be at once.
	Most = 6
	// maxLinks is over how many generations an authority leads back.
	maxLinks = 4
)

// Action is what may be done to an authority.
type Action string

// The actions.
const (
	Prepare  Action = "prepare"
	Activate Action = "activate"
	Retire   Action = "retire"
)

// Step is what follows.
type Step struct {
	Action Action       // empty for nothing
	ID     keyserver.ID // of the authority to retire
}

// Member is an authority of which the certificate was read.
type Member struct {
	keyserver.Authority
	Parsed *x509.Certificate
	Linked []*x509.Certificate // the links
	// InForce reports whether certificates that it issued, to others than this key
	// server, have not ended.
	InForce bool
}

// Due is what follows at now without anybody's word. Nothing does where the active
// one has expired: nobody would know its successor, so that people have to hand
// the successor out.
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
	case !ok && !now.Before(share(active, 1, 2)) && len(all) < Most:
		return Step{Action: Prepare}
	case ok && !now.Before(share(active, 2, 3)) && (dwelt(prepared, now) || active.Parsed.NotAfter.Sub(now) < Dwell):
		return Step{Action: Activate}
	}
	return Step{}
}

// MayPrepare refuses another authority.
func MayPrepare(all []Member) error {
	if m, ok := find(all, keyserver.AuthorityPrepared); ok {
		return refuse("the authority %s is prepared already; activate it, or retire it to have another one", m.ID.Base64())
	}
	if len(all) >= Most {
		return refuse("there are %d authorities, as many as may be; retire one first", len(all))
	}
	return nil
}

// MayActivate answers which authority is to issue from now on. early leaves out that
// it has to have been prepared for a while: who trusts the active one gets to it by
// its link all the same.
func MayActivate(all []Member, early bool, now time.Time) (Member, error) {
	next, ok := find(all, keyserver.AuthorityPrepared)
	if !ok {
		return next, refuse("no authority is prepared; prepare one first")
	}
	if expired(next, now) {
		return next, refuse("the authority that is prepared has expired; retire it and prepare another one")
	}
	active, ok := find(all, keyserver.AuthorityActive)
	if ok && !expired(active, now) && !early && !dwelt(next, now) {
		return next, refuse("the authority was prepared at %s, and not everybody may trust it yet; activate it from %s on, or send early",
			next.PreparedAt.UTC().Format(time.RFC3339), next.PreparedAt.Add(Dwell).UTC().Format(time.RFC3339))
	}
	return next, nil
}

// MayRetire answers which authority is to be trusted no more.
func MayRetire(all []Member, id keyserver.ID) (Member, error) {
	i := slices.IndexFunc(all, func(m Member) bool { return m.ID == id })
	switch {
	case i < 0:
		return Member{}, fault.New(fault.NotFound, "no authority has the certificateId %s; list them with GET /api/authority", id.Base64()).Audited(fault.ReasonObjectNotFound)
	case all[i].State == keyserver.AuthorityActive:
		return Member{}, refuse("the authority issues; prepare and activate another one before")
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
func dwelt(m Member, now time.Time) bool   { return !now.Before(m.PreparedAt.Add(Dwell)) }

// share is when n of the d parts of a life are over.
func share(m Member, n, d int64) time.Time {
	life := int64(m.Parsed.NotAfter.Sub(m.Parsed.NotBefore))
	return m.Parsed.NotBefore.Add(time.Duration(life / d * n))
}

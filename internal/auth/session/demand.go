package session

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Demand says which logins have to bind their session, to a key or to a client
// certificate.
type Demand string

// The demands.
const (
	DemandNone   Demand = "off"
	DemandPeople Demand = "people" // those with a password, which people have
	DemandAll    Demand = "all"    // every one
)

// Demands lists them, for sentences.
var Demands = []Demand{DemandNone, DemandPeople, DemandAll}

// ofPeople are the methods by which people log in, and whoever has a secret as they
// have.
var ofPeople = []keyserver.SessionKind{keyserver.PasswordSession, keyserver.LDAPSession}

// unmet reports whether a login has to bind its session and would not. What is made
// from a session is bound as that one is, or to a key of its own.
func (d Demand) unmet(l Login) bool {
	bound := l.Method == keyserver.CertificateSession || l.proof != nil || l.BindTo != "" ||
		l.parent != nil && (l.parent.BoundKey != "" || len(l.parent.BoundCertificate) > 0)
	switch d {
	case DemandPeople:
		return !bound && slices.Contains(ofPeople, l.Method)
	case DemandAll:
		return !bound
	case DemandNone:
	}
	return false
}

var errUnbound = fault.New(fault.ProofRequired, "this service opens no session that is bound to nothing (--require-proof): "+
	"send a DPoP proof (RFC 9449) with the login, or log in with a client certificate").Audited(fault.ReasonProofRequired)

package session

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Demand selects the logins that must bind their session to a key or to a client
// certificate.
type Demand string

// The demands.
const (
	DemandNone   Demand = "off"
	DemandPeople Demand = "people" // logins with a password
	DemandAll    Demand = "all"    // all logins
)

// Demands lists all demands, for messages.
var Demands = []Demand{DemandNone, DemandPeople, DemandAll}

// ofPeople are the login methods with a password. Programs with a password use them too.
var ofPeople = []keyserver.SessionKind{keyserver.PasswordSession, keyserver.LDAPSession}

// unmet reports whether a login must bind its session and does not. A derived session has the binding of its parent, or
// another one.
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

var errUnbound = fault.New(fault.ProofRequired, "this service requires a bound session for this login (--require-proof): "+
	"send a DPoP proof (RFC 9449) with the login, or log in with a client certificate").Audited(fault.ReasonProofRequired)

package session

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Demand selects the logins that must bind their session to a key or a client certificate.
type Demand string

// The values of Demand.
const (
	DemandNone   Demand = "off"
	DemandPeople Demand = "people" // logins with a password
	DemandAll    Demand = "all"    // all logins
)

// Demands contains all values of Demand, for messages.
var Demands = []Demand{DemandNone, DemandPeople, DemandAll}

// passwordMethods contains the login methods that need a password. Programs can use these methods, too.
var passwordMethods = []keyserver.SessionKind{keyserver.PasswordSession, keyserver.LDAPSession}

// unmet reports whether a login must bind its session, but does not bind it. A derived session is bound if it names a
// key or if its parent is bound.
func (d Demand) unmet(l Login) bool {
	bound := l.Method == keyserver.CertificateSession || l.proof != nil || l.BindTo != "" ||
		l.parent != nil && (l.parent.BoundKey != "" || len(l.parent.BoundCertificate) > 0)
	switch d {
	case DemandPeople:
		return !bound && slices.Contains(passwordMethods, l.Method)
	case DemandAll:
		return !bound
	case DemandNone:
	}
	return false
}

var errUnbound = fault.New(fault.ProofRequired, "this service requires a bound session for this login (--require-proof): "+
	"send a DPoP proof (RFC 9449) with the login, or log in with a client certificate").Audited(fault.ReasonProofRequired)

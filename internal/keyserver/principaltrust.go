package keyserver

// MaxUnwindowed is the maximum number of objects that a key server returns for a listing without a limit (contract
// 9.3).
const MaxUnwindowed = 1024

// TrustFlag is the effect of a principal trust.
type TrustFlag int

// The flags. A peer learns of a principal only if a row exposes it.
const (
	Restrict TrustFlag = 1
	Expose   TrustFlag = 2
)

// TrustFlags lists every flag, in the order in which messages show them.
var TrustFlags = []TrustFlag{Restrict, Expose}

// Label returns the name of the flag in contract 5.7, empty for an unknown flag.
func (f TrustFlag) Label() string {
	switch f {
	case Restrict:
		return "restrict"
	case Expose:
		return "expose"
	default:
		return ""
	}
}

// ParseTrustFlag returns the flag with the given label.
func ParseTrustFlag(label string) (TrustFlag, bool) {
	for _, f := range TrustFlags {
		if f.Label() == label {
			return f, true
		}
	}
	return 0, false
}

// PrincipalTrust decides whether one peer learns of one principal. There is at most one
// row for each pair of principal and peer.
type PrincipalTrust struct {
	ID        ID
	Principal ID
	Server    SystemID // the peer; it may no longer be registered
	Flag      TrustFlag
}

// PrincipalTrustChange sets the flag of a row.
type PrincipalTrustChange struct {
	ID   ID
	Flag TrustFlag
}

// PrincipalTrustFilter selects principal trusts, sorted by id. Nil fields select
// everything.
type PrincipalTrustFilter struct {
	ID        *ID
	Principal *ID
	Server    *SystemID
	// Limit 0 selects all rows and requires Offset 0. The key server then refuses to return more than MaxUnwindowed
	// rows.
	Limit  int
	Offset int
}

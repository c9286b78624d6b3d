package keyserver

// MaxUnwindowed is how many objects a key server answers to a listing that
// asks for no window (contract 9.3).
const MaxUnwindowed = 1024

// TrustFlag says what a principal trust does.
type TrustFlag int

// The flags. A peer sees a principal only where a row exposes it.
const (
	Restrict TrustFlag = 1
	Expose   TrustFlag = 2
)

// TrustFlags lists every flag, in the order messages show them.
var TrustFlags = []TrustFlag{Restrict, Expose}

// Label returns the word for the flag in contract 5.7, empty for none.
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

// ParseTrustFlag reads that word.
func ParseTrustFlag(label string) (TrustFlag, bool) {
	for _, f := range TrustFlags {
		if f.Label() == label {
			return f, true
		}
	}
	return 0, false
}

// PrincipalTrust says what one peer is told about one principal. There is at
// most one row for a principal and a peer.
type PrincipalTrust struct {
	ID        ID
	Principal ID
	Server    SystemID // the peer, which may no longer be registered
	Flag      TrustFlag
}

// PrincipalTrustChange sets the flag of a row.
type PrincipalTrustChange struct {
	ID   ID
	Flag TrustFlag
}

// PrincipalTrustFilter selects principal trusts, by id. Nil fields select
// everything.
type PrincipalTrustFilter struct {
	ID        *ID
	Principal *ID
	Server    *SystemID
	// Limit 0 asks for no window; then there is no Offset either, and a key
	// server refuses to answer more than MaxUnwindowed rows.
	Limit  int
	Offset int
}

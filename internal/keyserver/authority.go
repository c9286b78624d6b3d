package keyserver

import "time"

// AuthorityState is the present role of an authority of this key server.
type AuthorityState string

// The states. A retired authority is deleted.
const (
	AuthorityPrepared AuthorityState = "prepared" // trusted; issues nothing yet
	AuthorityActive   AuthorityState = "active"   // issues; there is exactly one
	AuthorityRetiring AuthorityState = "retiring" // trusted for the certificates that it issued
)

// Authority is a CA of this key server, without its private key.
type Authority struct {
	ID         ID
	Generation int // counts from 1
	State      AuthorityState
	// Certificate is self-signed, DER.
	Certificate []byte
	// Links are cross-certificates with the same name and key, DER, which lead to earlier
	// authorities. The first is signed by the authority that was active when this one was
	// prepared, the next certifies that one, and so on. The first authority has none.
	Links       [][]byte
	PreparedAt  time.Time
	ActivatedAt time.Time // zero until then
	RetiringAt  time.Time // zero until then
}

// AuthorityRetired is additional information about a retirement.
type AuthorityRetired struct {
	InForce int // unexpired certificates that the authority had issued
}

// PeerAuthority is an authority of a peer. It was learned from the peer, and an authority
// that is trusted here vouches for it. It is trusted for that peer only.
type PeerAuthority struct {
	System SystemID
	// Certificate is self-signed, DER.
	Certificate []byte
	// Links lead from Certificate to the anchor, DER.
	Links [][]byte
	// Anchor is the digest of the trusted CA at the end of the links. If that CA is no
	// longer trusted, neither is this authority.
	Anchor    Digest
	LearnedAt time.Time
}

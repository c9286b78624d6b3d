package keyserver

import "time"

// AuthorityState is the state of an authority: an internal CA of this key server.
type AuthorityState string

// The states. A retired authority is deleted.
const (
	AuthorityPrepared AuthorityState = "prepared" // trusted; issues nothing yet
	AuthorityActive   AuthorityState = "active"   // issues certificates; exactly one authority is active
	AuthorityRetiring AuthorityState = "retiring" // trusted for the certificates that it issued
)

// Authority is a CA of this key server, without its private key.
type Authority struct {
	ID         ID
	Generation int // counts from 1
	State      AuthorityState
	// Certificate is self-signed, DER.
	Certificate []byte
	// Links are cross-certificates in DER. The first one certifies the name and the key of this authority, and is
	// signed by the authority that was active when this one was prepared. Each further one certifies the signer of the
	// one before it. The first authority has none.
	Links       [][]byte
	PreparedAt  time.Time
	ActivatedAt time.Time // zero until then
	RetiringAt  time.Time // zero until then
}

// AuthorityRetired is additional information about a retirement.
type AuthorityRetired struct {
	InForce int // unexpired certificates that the authority had issued
}

// PeerAuthority is an authority of a peer. The peer has sent it, and an authority that this key server trusts certifies
// it. This key server trusts it for that peer only.
type PeerAuthority struct {
	System SystemID
	// Certificate is self-signed, DER.
	Certificate []byte
	// Links are the certificates from Certificate to the anchor, in DER.
	Links [][]byte
	// Anchor is the digest of the trusted CA at the end of the links. If that CA is no
	// longer trusted, neither is this authority.
	Anchor    Digest
	LearnedAt time.Time
}

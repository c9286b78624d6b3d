package keyserver

import "time"

// AuthorityState is what an authority of this key server does just now.
type AuthorityState string

// The states. An authority that was retired is gone.
const (
	AuthorityPrepared AuthorityState = "prepared" // trusted, and issues nothing yet
	AuthorityActive   AuthorityState = "active"   // issues; there is one
	AuthorityRetiring AuthorityState = "retiring" // trusted for what it issued
)

// Authority is a CA of this key server's own, without its key.
type Authority struct {
	ID         ID
	Generation int // counts from 1
	State      AuthorityState
	// Certificate is self-signed, DER.
	Certificate []byte
	// Links are certificates of the same name and key, DER, by which it leads back
	// to those before it: the first is signed by the one that was active when it was
	// prepared, the next says the same of that one, and so on. The very first
	// authority has none.
	Links       [][]byte
	PreparedAt  time.Time
	ActivatedAt time.Time // zero until then
	RetiringAt  time.Time // zero until then
}

// AuthorityRetired is what the key server says that retiring did besides.
type AuthorityRetired struct {
	InForce int // certificates of the authority that would have been good for longer
}

// PeerAuthority is an authority of a peer that was learned from the peer itself,
// while one that is trusted here vouched for it. It counts for that peer alone.
type PeerAuthority struct {
	System SystemID
	// Certificate is self-signed, DER.
	Certificate []byte
	// Links lead from it to the anchor, DER.
	Links [][]byte
	// Anchor is the digest of the trusted CA at the end of the links. Where that CA
	// is no longer in the list, the authority counts for nothing.
	Anchor    Digest
	LearnedAt time.Time
}

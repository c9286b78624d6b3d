package keyserver

import (
	"context"
	"fmt"
	"slices"
)

// Federated is what key servers ask of each other: the part of the port that
// is carried to the key server that owns a key or a principal. Whoever asks
// fills in Caller.Peer.
type Federated interface {
	Key(ctx context.Context, by Caller, link HiddenLink) (KeyMetadata, error)
	AuthorizeKey(ctx context.Context, by Caller, use Use) (Grant, error)
	HMAC(ctx context.Context, by Caller, r HMACRequest) ([MACSize]byte, error)
	MAC(ctx context.Context, by Caller, r MACRequest) (MAC, error)
	VerifyMAC(ctx context.Context, by Caller, r MACCheck) (MACVerdict, error)
	Encrypt(ctx context.Context, by Caller, r Encryption) (Ciphertext, error)
	Decrypt(ctx context.Context, by Caller, r Decryption) (Plaintext, error)
	ACL(ctx context.Context, by Caller, link HiddenLink) (ACL, error)
	GrantACL(ctx context.Context, by Caller, change ACLChange) error
	AmendACL(ctx context.Context, by Caller, change ACLChange) error
	RevokeACL(ctx context.Context, by Caller, r ACLRevocation) error
	// LookupPrincipals leaves out what the key server asked does not have. Where
	// it has to leave out anything else it fails: with an UnreadableError, which
	// names that, beside the other principals.
	LookupPrincipals(ctx context.Context, by Caller, pairs []PrincipalRef) ([]Principal, error)
}

// UnreadableError is the cause of a lookup's failure where a key server has
// principals that cannot be shown as it answers them. They are not gone.
type UnreadableError struct{ Principals []PrincipalRef }

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%d principals cannot be shown", len(e.Principals))
}

// PeerCall is what a call between key servers says besides who it is for.
type PeerCall struct {
	// System is the key server that asks; the one asked knows it by its
	// certificate.
	System SystemID
	// Groups are the enabled groups of that key server that the principal is in.
	Groups []PrincipalRef
	// Key is the same in each repetition of a call that may have had an effect,
	// and in no other call. It is drawn by whoever asks.
	Key CallKey
	// Single is a call that nobody repeats, such as one with a streamed message:
	// a key that is known is not a repetition of it.
	Single bool
}

// CallKey names one call among those of a peer.
type CallKey [32]byte

// ForwardedOperations are what a key server does for the principals of others.
var ForwardedOperations = []Operation{OpReadKey, OpAuthorizeKey, OpHMAC, OpMACData, OpVerifyMAC, OpEncrypt, OpDecrypt, OpReadACL, OpAmendACL, OpLookupPrincipals}

// Forwarded reports whether the operation is one of them.
func (op Operation) Forwarded() bool {
	return slices.ContainsFunc(ForwardedOperations, func(o Operation) bool { return o.ID == op.ID })
}

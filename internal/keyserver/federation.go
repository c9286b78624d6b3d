package keyserver

import (
	"context"
	"fmt"
	"slices"
)

// Federated has the methods of Port that key servers call on each other. The calling key server sends the request to
// the key server that owns the key or the principal, and sets Caller.Peer.
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
	// LookupPrincipals omits principals that the called key server does not have. If some principals cannot be
	// displayed, it returns the other principals with an UnreadableError that names those it omitted.
	LookupPrincipals(ctx context.Context, by Caller, pairs []PrincipalRef) ([]Principal, error)
}

// UnreadableError is the cause of a failed lookup if a key server returns principals that cannot be displayed. These
// principals still exist.
type UnreadableError struct{ Principals []PrincipalRef }

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%d principals cannot be shown", len(e.Principals))
}

// PeerCall has the data of a call between key servers, except the principal.
type PeerCall struct {
	// System is the calling key server; the called one identifies it by its certificate.
	System SystemID
	// Groups are the enabled groups of the calling key server that contain the principal.
	Groups []PrincipalRef
	// Key identifies the call. The calling key server draws it at random. The called key server computes it as a hash
	// over the nonce in the call and the arguments. If a call may have had an effect, each repetition of the call has
	// the same key. No other call has it.
	Key CallKey
	// Single marks a call that is never repeated, such as a call with a streamed message. A second call with the same
	// key is therefore not a repetition.
	Single bool
}

// CallKey identifies a call among the calls of a peer.
type CallKey [32]byte

// ForwardedOperations are the operations that a key server performs for principals of
// peers.
var ForwardedOperations = []Operation{OpReadKey, OpAuthorizeKey, OpHMAC, OpMACData, OpVerifyMAC, OpEncrypt, OpDecrypt, OpReadACL, OpAmendACL, OpLookupPrincipals}

// Forwarded reports whether the operation is in ForwardedOperations.
func (op Operation) Forwarded() bool {
	return slices.ContainsFunc(ForwardedOperations, func(o Operation) bool { return o.ID == op.ID })
}

package keyserver

import (
	"context"
	"fmt"
	"slices"
)

// Federated is the part of the port that key servers call on each other: the request is
// sent to the key server that owns the key or the principal. The calling key server sets
// Caller.Peer.
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
	// LookupPrincipals omits principals that the called key server does not have. If it
	// has to omit others, it returns the readable principals with an UnreadableError that
	// names the omitted ones.
	LookupPrincipals(ctx context.Context, by Caller, pairs []PrincipalRef) ([]Principal, error)
}

// UnreadableError is the cause of a failed lookup if a key server returns principals that
// cannot be displayed. They still exist.
type UnreadableError struct{ Principals []PrincipalRef }

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%d principals cannot be shown", len(e.Principals))
}

// PeerCall has the fields of a call between key servers that do not identify the
// principal.
type PeerCall struct {
	// System is the calling key server; the called one identifies it by its certificate.
	System SystemID
	// Groups are the enabled groups of the calling key server that contain the principal.
	Groups []PrincipalRef
	// Key is drawn by the caller. It is equal in each repetition of a call that may have
	// had an effect, and in no other call.
	Key CallKey
	// Single marks a call that is never repeated, such as one with a streamed message. If
	// its key is known already, it is not a repetition.
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

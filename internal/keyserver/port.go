package keyserver

import (
	"context"
	"time"
)

// Port is everything a key server can be asked. Each method is one operation
// of the catalogue: the key server authorises and audits it before any effect
// and answers a fault when it refuses. No method verifies its own effect; that
// is the work of package operations.
type Port interface {
	Keys
	ACLs
	Roles
	TrustedCAs
	Principals
	Records
}

// Keys are the operations on keys.
type Keys interface {
	// MintKey makes or imports a key. The caller becomes its owner.
	MintKey(ctx context.Context, by Caller, key NewKey) (KeyMetadata, error)
	// Key reads metadata. KEY_NOT_FOUND where the link names no key.
	Key(ctx context.Context, by Caller, link HiddenLink) (KeyMetadata, error)
	// AuthorizeKey asks whether the caller may use the key: a grant, or
	// ACL_DENIED, ACCESS_DENIED, KEY_NOT_FOUND.
	AuthorizeKey(ctx context.Context, by Caller, link HiddenLink, filename string) (Grant, error)
	// HMAC computes HMAC-SHA384 of the message under the key.
	HMAC(ctx context.Context, by Caller, link HiddenLink, message Message) ([MACSize]byte, error)
}

// ACLs are the operations on access control lists. Each answers ACL_NOT_FOUND
// where the link names no key, and AmendACL also where the principal has no entry.
type ACLs interface {
	ACL(ctx context.Context, by Caller, link HiddenLink) (ACL, error)
	// GrantACL adds rights to the principal's entry, which it makes where
	// there is none; limits are replaced.
	GrantACL(ctx context.Context, by Caller, link HiddenLink, change ACLChange) error
	// AmendACL sets the entry to exactly the (widened) rights.
	AmendACL(ctx context.Context, by Caller, link HiddenLink, change ACLChange) error
	// RevokeACL removes the principal's entry.
	RevokeACL(ctx context.Context, by Caller, link HiddenLink, principal PrincipalRef) error
}

// Roles are the operations on roles and the operations catalogue.
type Roles interface {
	Operations(ctx context.Context, by Caller) ([]Operation, error)
	Roles(ctx context.Context, by Caller) ([]Role, error)
	CreateRole(ctx context.Context, by Caller, name string, operations []ID) (ID, error)
	UpdateRole(ctx context.Context, by Caller, id ID, change RoleChange) error
	// DeleteRole removes the role, also from every principal that holds it.
	DeleteRole(ctx context.Context, by Caller, id ID) error
}

// TrustedCAs are the operations on the list of trusted CAs.
type TrustedCAs interface {
	TrustedCAs(ctx context.Context, by Caller) ([]Certificate, error)
	// AddTrustedCA adds one DER certificate and echoes the objects it made.
	AddTrustedCA(ctx context.Context, by Caller, der []byte) ([]ID, error)
	// RemoveTrustedCA removes one and echoes the objects it removed.
	RemoveTrustedCA(ctx context.Context, by Caller, id ID) ([]ID, error)
}

// Principals are the operations on principals.
type Principals interface {
	Principal(ctx context.Context, by Caller, id ID) (Principal, error)
	CreatePasswordPrincipal(ctx context.Context, by Caller, p NewPasswordPrincipal) (ID, error)
}

// Records are what the key server tells about itself.
type Records interface {
	Version(ctx context.Context, by Caller) (Version, error)
	Audit(ctx context.Context, by Caller, filter AuditFilter) (AuditPage, error)
	// Changes waits up to wait for a change after the cursor. At most 60 s.
	Changes(ctx context.Context, by Caller, after int64, wait time.Duration) (ChangePage, error)
	// Ready reports each part. It needs no caller and is not audited.
	Ready(ctx context.Context) []Readiness
}

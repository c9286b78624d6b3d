package keyserver

// SessionKind says how the caller's session came to be and which rules it
// lives under (contract 19.4).
type SessionKind string

// The session kinds. A kind is named after the login method.
const (
	PasswordSession SessionKind = "password"
	// CertificateSession is a login by client certificate.
	CertificateSession SessionKind = "certificate"
	KubernetesSession  SessionKind = "kubernetes"
	LDAPSession        SessionKind = "ldap"
	// DelegatedSession acts with the rights of another principal, its delegator.
	DelegatedSession SessionKind = "delegated"
	// ScopedSession is a credential made from another session. It has a fixed
	// lifetime and covers the keys that it names.
	ScopedSession SessionKind = "scoped"
	// PeerSession is another key server asking for one of its principals.
	PeerSession SessionKind = "peer"
	// InternalSession is the service acting for itself, for instance at first
	// start. It never comes from a request.
	InternalSession SessionKind = "internal"
)

// Caller is who asks. Every call of the port takes it explicitly. Rights are
// not part of it: the engine reads them anew for each operation.
type Caller struct {
	Principal PrincipalRef
	Name      string
	Type      PrincipalType
	Session   ID // the session's record, never its secret
	Kind      SessionKind
	RequestID string
	// Address is where the request came from; For is what it says it is made for.
	Address, For string
	// Approval is the one under which a request is carried out; zero without.
	Approval ID
	// Approved are the rules of the approval policy that it satisfies.
	Approved []string
	// Bound: whoever has the session id alone cannot use it, because the session is
	// bound to a key.
	Bound bool
	// Certificate is the one that the session, or the one that it was made
	// from, was opened with; zero where that was another way to log in.
	Certificate ID
	// Actor is who really acts where Principal is a delegator; zero in every
	// other session.
	Actor PrincipalRef
	// Scope lists the keys that a scoped credential covers; nil in every other
	// session. An empty, non-nil scope covers nothing.
	Scope []HiddenLink
	// ScopeOperations are what a scoped credential may do with these keys, and
	// MayGrant the rights on them that it may give; both are empty in every
	// other session.
	ScopeOperations []ID
	MayGrant        Rights
	// Peer is set in a call between key servers and nowhere else.
	Peer *PeerCall
}

// Acting returns the principal that sent the request. In a delegated session this is the delegate.
func (c *Caller) Acting() PrincipalRef {
	if !c.Actor.ID.IsZero() {
		return c.Actor
	}
	return c.Principal
}

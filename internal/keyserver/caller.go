package keyserver

// SessionKind is the way in which a session was created. It selects the rules for the session
// (contract 19.4).
type SessionKind string

// The session kinds. Most are named after the login method.
const (
	PasswordSession SessionKind = "password"
	// CertificateSession is a login by client certificate.
	CertificateSession SessionKind = "certificate"
	KubernetesSession  SessionKind = "kubernetes"
	LDAPSession        SessionKind = "ldap"
	// DelegatedSession acts with the rights of another principal, its delegator.
	DelegatedSession SessionKind = "delegated"
	// ScopedSession is a credential that was made from another session. It has a fixed lifetime
	// and covers only the keys that it names.
	ScopedSession SessionKind = "scoped"
	// PeerSession is a call of another key server for one of its principals.
	PeerSession SessionKind = "peer"
	// InternalSession is used if the key server acts for itself, for instance at the first start. No request creates
	// it.
	InternalSession SessionKind = "internal"
)

// Caller identifies the sender of a request. Each method of Port takes it as an argument. It contains no rights: the
// key server reads the rights for each operation.
type Caller struct {
	Principal PrincipalRef
	Name      string
	Type      PrincipalType
	Session   ID // id of the session's record; not its secret
	Kind      SessionKind
	RequestID string
	// Address is the address that the request came from. Purpose is the purpose that the request states.
	Address, Purpose string
	// Approval is the approval under which a request is executed; zero for none.
	Approval ID
	// Approved are the rules of the approval policy that this approval satisfies.
	Approved []string
	// Bound reports that the session is bound to a key, so the session id alone is not sufficient to use the session.
	Bound bool
	// Certificate is the id of the client certificate that opened the session, or the session that it was made from. It
	// is zero for other login methods.
	Certificate ID
	// Actor is the principal that acts if Principal is a delegator; zero in every other session.
	Actor PrincipalRef
	// Scope lists the keys that a scoped credential covers; nil in every other
	// session. An empty, non-nil scope covers nothing.
	Scope []HiddenLink
	// ScopeOperations are the operations that a scoped credential may perform with these keys. MayGrant are the rights
	// on these keys that it may grant. Both are empty in every other session.
	ScopeOperations []ID
	MayGrant        Rights
	// Peer is set only in a call between key servers.
	Peer *PeerCall
}

// Acting returns the principal that sent the request. In a delegated session this is the delegate.
func (c *Caller) Acting() PrincipalRef {
	if !c.Actor.ID.IsZero() {
		return c.Actor
	}
	return c.Principal
}

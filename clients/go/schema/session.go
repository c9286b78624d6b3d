package schema

import "time"

// The login methods. A session's kind is named after its method.
const (
	MethodCertificate = "certificate"
	MethodPassword    = "password"
	MethodDelegated   = "delegated"
	MethodScoped      = "scoped"
)

// The login methods that use an identity provider.
const (
	MethodKubernetes = "kubernetes"
	MethodLDAP       = "ldap"
)

// LoginRequest requests a session. Each method accepts only the fields whose
// description names it.
type LoginRequest struct {
	Method   string `json:"method" enum:"LoginMethod" doc:"Login method."`
	Name     string `json:"name,omitzero" limit:"1..128" doc:"Name of the principal (password, ldap)."`
	Password Secret `json:"password,omitzero" limit:"1..1024" doc:"Password (password, ldap)."`
	Token    Secret `json:"token,omitzero" limit:"1..16384" example:"-" doc:"Projected token of a service account, with the audience of this service (kubernetes)."`

	PrincipalID     *HexID       `json:"principalId,omitzero" example:"-" doc:"Id of the principal whose rights the session gets (delegated)."`
	Objects         []HiddenLink `json:"objects,omitzero" items:"1..64" example:"-" doc:"Hidden links of the keys that the credential may use, without duplicates (scoped)."`
	Operations      []string     `json:"operations,omitzero" items:"1..9" example:"-" doc:"Operations that the credential may use, without duplicates (scoped): hmacData, authorizeKey, readKeyMetadata, readACL, macData, verifyMAC, encryptData, decryptData, amendACL. Default: the first four."`
	MayGrant        *Rights      `json:"mayGrant,omitzero" example:"-" doc:"Rights that the credential may grant and revoke if it names amendACL (scoped). OWNER is not allowed."`
	LifetimeSeconds *int         `json:"lifetimeSeconds,omitzero" limit:"1..31536000" example:"-" doc:"Lifetime of the credential in seconds (scoped). Maximum: the lifetime of sessions, and the end of the calling session. Default: the setting of the service."`
	DPoPJKT         *string      `json:"dpopJkt,omitzero" limit:"43..43" example:"-" doc:"RFC 7638 thumbprint of the key that the credential is bound to (scoped). Default: the key of the request's proof, if there is one."`
}

// SessionPrincipal is the principal whose rights a session has.
type SessionPrincipal struct {
	ID          HexID     `json:"id" doc:"16 hexadecimal digits."`
	PrincipalID DecimalID `json:"principalId" doc:"The same identifier in decimal."`
	SystemID    SystemID  `json:"systemId" doc:"System id of the key server that owns the principal."`
	Name        string    `json:"name"`
	Type        string    `json:"type" enum:"PrincipalType"`
}

// SessionRole is a role that the session's principal holds.
type SessionRole struct {
	ID   HexID  `json:"id"`
	Name string `json:"name"`
}

// SessionActor is a principal that acts with the rights of another.
type SessionActor struct {
	ID          HexID     `json:"id"`
	PrincipalID DecimalID `json:"principalId" doc:"The same identifier in decimal."`
	SystemID    SystemID  `json:"systemId"`
}

// Session describes a valid session, without its secret session id.
type Session struct {
	ID         HexID            `json:"id" doc:"Public id of the session, for the audit log and listings. It does not authenticate requests."`
	Kind       string           `json:"kind" doc:"Kind of the session, named after the login method."`
	Principal  SessionPrincipal `json:"principal"`
	Roles      []SessionRole    `json:"roles"`
	Actor      *SessionActor    `json:"actor,omitzero" doc:"Principal that acts. Only in a delegated session and in sessions made from it."`
	Objects    []HiddenLink     `json:"objects,omitzero" doc:"Only keys that the session may use. Only in a scoped session."`
	Operations []string         `json:"operations,omitzero" doc:"Only operations that the session may use. Only in a scoped session."`
	MayGrant   *Rights          `json:"mayGrant,omitzero" doc:"Rights that the session may grant and revoke. Only in a scoped session that may change ACLs."`
	BoundKey   *string          `json:"boundKey" doc:"RFC 7638 thumbprint of the key that the session is bound to; or null."`
	// BoundCertificate is an extension (contract 1.2), as are sessions with it.
	BoundCertificate string    `json:"boundCertificate,omitzero" doc:"SHA-256 of the client certificate that each request needs, in hexadecimal. Only in a session that is bound to a certificate."`
	ExpiresAt        time.Time `json:"expiresAt" doc:"End of the absolute lifetime."`
	IdleExpiresAt    time.Time `json:"idleExpiresAt" doc:"End of the idle lifetime if there is no further request."`
}

// LoginResponse is a new session with its session id, which no other response contains.
type LoginResponse struct {
	SessionID Secret `json:"sessionId" doc:"Session id; send it as Authorization: Bearer."`
	Session
}

// SessionEnded is the response of a logout.
type SessionEnded struct {
	Ended  bool   `json:"ended" doc:"True if the session id is no longer valid."`
	Detail string `json:"detail" doc:"Text for people; the wording may change."`
}

// SessionQuery selects valid sessions.
type SessionQuery struct {
	PrincipalID *HexID `query:"principalId" names:"principal" doc:"Return only sessions with the rights of this principal or in which it acts; 16 hexadecimal digits. Sessions of the caller need no role."`
	Limit       *int   `query:"limit" limit:"1..1000" doc:"Maximum number of sessions in a page; default 100."`
	After       *HexID `query:"after" names:"-" doc:"Value of next from the previous page."`
}

// ListedSession is the information about a session in a list.
type ListedSession struct {
	ID               HexID            `json:"id" doc:"Public id of the session. It does not authenticate requests."`
	Kind             string           `json:"kind" doc:"Kind of the session, named after the login method."`
	Principal        SessionPrincipal `json:"principal" doc:"Principal whose rights the session has."`
	Actor            *SessionActor    `json:"actor,omitzero" doc:"Principal that acts. Only in a delegated session and in sessions made from it."`
	BoundKey         *string          `json:"boundKey" doc:"RFC 7638 thumbprint of the key that the session is bound to; or null."`
	BoundCertificate string           `json:"boundCertificate,omitzero" doc:"SHA-256 of the client certificate that each request needs, in hexadecimal. Only in a session that is bound to a certificate."`
	Address          string           `json:"address" doc:"IP address of the login; empty if unknown."`
	CreatedAt        time.Time        `json:"createdAt" doc:"Time of the login."`
	LastUsedAt       time.Time        `json:"lastUsedAt" doc:"Time of the last request. Requests to other replicas appear after at most a tenth of the idle lifetime."`
	ExpiresAt        time.Time        `json:"expiresAt" doc:"End of the absolute lifetime."`
	IdleExpiresAt    time.Time        `json:"idleExpiresAt" doc:"End of the idle lifetime if there is no further request; computed from lastUsedAt."`
	MadeFrom         *HexID           `json:"madeFrom" doc:"Id of the session that it was made from; or null."`
}

// SessionListing is a page of sessions, sorted by id.
type SessionListing struct {
	Count    int             `json:"count" doc:"Number of objects in this page."`
	Sessions []ListedSession `json:"sessions" doc:"Valid sessions."`
	Next     *HexID          `json:"next" doc:"Value of after for the next page; null on the last page."`
	Detail   string          `json:"detail" doc:"Text for people; the wording may change."`
}

// SessionsEnded is the response of a route that ends sessions.
type SessionsEnded struct {
	Ended  int    `json:"ended" doc:"Number of ended sessions, including those made from them."`
	Detail string `json:"detail" doc:"Text for people; the wording may change."`
}

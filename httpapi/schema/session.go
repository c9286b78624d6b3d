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
	Method   string `json:"method" enum:"password,kubernetes,ldap,certificate,delegated,scoped" doc:"How the caller proves who it is."`
	Name     string `json:"name,omitzero" limit:"1..128" doc:"Principal name (password, ldap)."`
	Password Secret `json:"password,omitzero" limit:"1..1024" doc:"Password (password, ldap)."`
	Token    Secret `json:"token,omitzero" limit:"1..16384" example:"-" doc:"Projected token of a service account, with the audience of this service (kubernetes)."`

	PrincipalID     *HexID       `json:"principalId,omitzero" example:"-" doc:"Whose rights the session is to have, as its id (delegated)."`
	Objects         []HiddenLink `json:"objects,omitzero" items:"1..64" example:"-" doc:"Hidden links of the keys that the credential is good for, each once (scoped)."`
	Operations      []string     `json:"operations,omitzero" items:"1..9" example:"-" doc:"What the credential is good for, each once (scoped): hmacData, authorizeKey, readKeyMetadata, readACL, macData, verifyMAC, encryptData, decryptData, amendACL. Left out: the first four."`
	MayGrant        *Rights      `json:"mayGrant,omitzero" example:"-" doc:"Rights that the credential may give and take where it names amendACL (scoped); OWNER is in none."`
	LifetimeSeconds *int         `json:"lifetimeSeconds,omitzero" limit:"1..31536000" example:"-" doc:"How long the credential is good for (scoped); at most the lifetime of sessions, and never past the end of the calling one. Left out: the service's setting."`
	DPoPJKT         *string      `json:"dpopJkt,omitzero" limit:"43..43" example:"-" doc:"RFC 7638 thumbprint of the key that the credential is for (scoped); left out: that of the request's proof, if there is one."`
}

// SessionPrincipal is the principal whose rights a session has.
type SessionPrincipal struct {
	ID          HexID     `json:"id" doc:"16 hexadecimal digits."`
	PrincipalID DecimalID `json:"principalId" doc:"The same identifier in decimal."`
	SystemID    SystemID  `json:"systemId" doc:"The key server that owns the principal."`
	Name        string    `json:"name"`
	Type        string    `json:"type" enum:"password,certificate,ldap,xauth,group"`
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
	ID         HexID            `json:"id" doc:"Names the session and opens nothing: the audit trail and the listing show it."`
	Kind       string           `json:"kind" doc:"Named after the login method."`
	Principal  SessionPrincipal `json:"principal"`
	Roles      []SessionRole    `json:"roles"`
	Actor      *SessionActor    `json:"actor,omitzero" doc:"Who really acts; in a delegated session and what is made from it."`
	Objects    []HiddenLink     `json:"objects,omitzero" doc:"The only keys that the session is good for; in a scoped one."`
	Operations []string         `json:"operations,omitzero" doc:"The only operations that the session is good for; in a scoped one."`
	MayGrant   *Rights          `json:"mayGrant,omitzero" doc:"The rights that the session may give and take; in a scoped one that changes lists."`
	BoundKey   *string          `json:"boundKey" doc:"RFC 7638 thumbprint of the key that the session is bound to, or null."`
	// BoundCertificate is an extension, as are the sessions that have it.
	BoundCertificate string    `json:"boundCertificate,omitzero" doc:"SHA-256 of the client certificate that each request has to come with, in hexadecimal; in a session that is bound to one."`
	ExpiresAt        time.Time `json:"expiresAt" doc:"End of the absolute lifetime."`
	IdleExpiresAt    time.Time `json:"idleExpiresAt" doc:"End of the idle lifetime if nothing more is asked."`
}

// LoginResponse is a new session with its session id, which no other response contains.
type LoginResponse struct {
	SessionID Secret `json:"sessionId" doc:"Send it as Authorization: Bearer."`
	Session
}

// SessionEnded is the response of a logout.
type SessionEnded struct {
	Ended  bool   `json:"ended" doc:"The session id opens nothing any more."`
	Detail string `json:"detail" doc:"For people; its wording may change."`
}

// SessionQuery selects valid sessions.
type SessionQuery struct {
	PrincipalID *HexID `query:"principalId" names:"principal" doc:"Only those that have this principal's rights or in which it acts; 16 hexadecimal digits. One's own need no role."`
	Limit       *int   `query:"limit" limit:"1..1000" doc:"Sessions in a page, 100 when left out."`
	After       *HexID `query:"after" names:"-" doc:"The next of an earlier page."`
}

// ListedSession is the information about a session in a list.
type ListedSession struct {
	ID               HexID            `json:"id" doc:"Names the session and opens nothing."`
	Kind             string           `json:"kind" doc:"Named after the login method."`
	Principal        SessionPrincipal `json:"principal" doc:"Whose rights it has."`
	Actor            *SessionActor    `json:"actor,omitzero" doc:"Who really acts; in a delegated session and what is made from it."`
	BoundKey         *string          `json:"boundKey" doc:"RFC 7638 thumbprint of the key that the session is bound to, or null."`
	BoundCertificate string           `json:"boundCertificate,omitzero" doc:"SHA-256 of the client certificate that each request has to come with, in hexadecimal; in a session that is bound to one."`
	Address          string           `json:"address" doc:"Of the client that logged in; empty where it is not known."`
	CreatedAt        time.Time        `json:"createdAt" doc:"When it was opened."`
	LastUsedAt       time.Time        `json:"lastUsedAt" doc:"What another replica was asked shows within a tenth of the idle time."`
	ExpiresAt        time.Time        `json:"expiresAt" doc:"End of the absolute lifetime."`
	IdleExpiresAt    time.Time        `json:"idleExpiresAt" doc:"End of the idle lifetime if nothing more is asked; as old as lastUsedAt."`
	MadeFrom         *HexID           `json:"madeFrom" doc:"The session that it was made from, or null."`
}

// SessionListing is a page of sessions, sorted by id.
type SessionListing struct {
	Count    int             `json:"count" doc:"Of this page."`
	Sessions []ListedSession `json:"sessions" doc:"Live ones."`
	Next     *HexID          `json:"next" doc:"What the next page is after, or null where this is the last."`
	Detail   string          `json:"detail" doc:"For people; its wording may change."`
}

// SessionsEnded is the response of a route that ends sessions.
type SessionsEnded struct {
	Ended  int    `json:"ended" doc:"How many have ended, those made from them included."`
	Detail string `json:"detail" doc:"For people; its wording may change."`
}

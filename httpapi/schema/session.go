package schema

import "time"

// The login methods. A session's kind is named after its method.
const (
	MethodPassword = "password"
)

// LoginRequest asks for a session. Each method takes the fields that name it;
// others are refused.
type LoginRequest struct {
	Method   string `json:"method" enum:"password" doc:"How the caller proves who it is."`
	Name     string `json:"name,omitzero" limit:"1..128" doc:"Principal name (password)."`
	Password Secret `json:"password,omitzero" limit:"1..1024" doc:"Password (password)."`
}

// SessionPrincipal is who a session acts as.
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

// Session describes a live session, without its id.
type Session struct {
	Kind          string           `json:"kind" doc:"Named after the login method."`
	Principal     SessionPrincipal `json:"principal"`
	Roles         []SessionRole    `json:"roles"`
	BoundKey      *string          `json:"boundKey" doc:"RFC 7638 thumbprint of the key that the session is bound to, or null."`
	ExpiresAt     time.Time        `json:"expiresAt" doc:"End of the absolute lifetime."`
	IdleExpiresAt time.Time        `json:"idleExpiresAt" doc:"End of the idle lifetime if nothing more is asked."`
}

// LoginResponse is a new session with its id, which is shown this once.
type LoginResponse struct {
	SessionID Secret `json:"sessionId" doc:"Send it as Authorization: Bearer."`
	Session
}

// SessionEnded answers a logout.
type SessionEnded struct {
	Ended  bool   `json:"ended" doc:"The session id opens nothing any more."`
	Detail string `json:"detail"`
}

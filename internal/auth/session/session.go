// Package session authenticates callers: a login opens a session, and a session id identifies the caller of a request.
// A session id is 256 random bits. The store contains only its SHA-256, so that a copy of the database cannot be used
// to authenticate.
package session

import (
	"crypto/x509"
	"fmt"
	"io"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/dpop"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
)

// Login is a request to open a session. A login method reads only its own fields. The caller has checked that no other
// fields are set.
type Login struct {
	Method    keyserver.SessionKind // the login method, which becomes the kind of the session
	Name      string                // password, ldap
	Password  string                // password, ldap
	Token     string                // kubernetes
	Delegator keyserver.ID          // delegated: the principal whose rights the session gets
	Objects   []keyserver.HiddenLink
	// Operations (the names in the audit log) and MayGrant are for a scoped login. If Operations is nil, the session gets
	// the default operations.
	Operations []string
	MayGrant   keyserver.Rights
	Lifetime   time.Duration // scoped; 0: the default lifetime
	BindTo     string        // scoped: RFC 7638 thumbprint of the key to which the credential is bound
	From
	Proof Proof // binds the session to its key

	// Certificates are those of the TLS connection; the first is the client's own certificate.
	Certificates []*x509.Certificate
	// By is the caller of a delegated or scoped login. The new session is derived from the caller's session.
	By *keyserver.Caller

	proof   *dpop.Proof // verified
	attempt *attempt
	parent  *sessionrows.SessionRecord // session of By; nil if By is nil
}

// From describes the origin of a request.
type From struct {
	RequestID string
	Address   string // of the client, without port; empty if unknown
	For       string // the purpose that the request states
	// Stranger limits requests without a session. It is nil if the request already has a place.
	Stranger Stranger
}

// Stranger is a request that is not authenticated yet.
type Stranger interface {
	// TakePlace takes one of the places for unauthenticated requests. Its error is the response to the request.
	TakePlace() error
}

// String returns the method and the name, without secrets.
func (l Login) String() string { return string(l.Method) + " login of " + l.Name }

// Format formats l like String for every verb, so that no verb prints a secret.
func (l Login) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, l.String()) }

// Info describes a session without its session id.
type Info struct {
	ID         keyserver.ID
	Kind       keyserver.SessionKind
	Principal  keyserver.Principal
	Actor      keyserver.PrincipalRef // the acting principal; set only in a delegated session
	Objects    []keyserver.HiddenLink // keys of a scoped session; nil for any other session
	Operations []keyserver.ID         // operations of a scoped session; nil for any other session
	MayGrant   keyserver.Rights       // rights that a scoped session may grant
	Roles      []keyserver.Role
	BoundKey   string // RFC 7638 thumbprint; empty if the session is not bound to a key
	// BoundCertificate is the SHA-256 of the client certificate that each request must use; empty if there is none.
	BoundCertificate []byte
	Expiry
}

// Opened is a new session with its session id. Only this result contains the session id.
type Opened struct {
	Token string
	Info  Info
}

// String returns the id of the session's record, without the token.
func (o Opened) String() string { return "session " + o.Info.ID.String() }

// Format formats o like String for every verb, so that no verb prints the token.
func (o Opened) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, o.String()) }

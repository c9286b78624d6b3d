// Package session authenticates callers: a login opens a session, and a session id
// identifies the caller of an operation. A session id is 256 random bits. The store has
// only its SHA-256, so a copy of the database opens no session.
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

// Login is a request to open a session. A method reads only its own fields; the caller has
// checked that no others are set.
type Login struct {
	Method    keyserver.SessionKind // the kind of the session names the method
	Name      string                // password, ldap
	Password  string                // password, ldap
	Token     string                // kubernetes
	Delegator keyserver.ID          // delegated: the principal whose rights the session gets
	Objects   []keyserver.HiddenLink
	// Operations (by their names in the audit log) and MayGrant belong to a scoped login. Without Operations, the
	// session gets the default ones.
	Operations []string
	MayGrant   keyserver.Rights
	Lifetime   time.Duration // scoped; 0 is the default
	BindTo     string        // scoped: RFC 7638 thumbprint of the key to which the credential is bound
	From
	Proof Proof // binds the session to its key

	// Certificates are those of the TLS connection, the client's leaf first.
	Certificates []*x509.Certificate
	// By is the caller whose session a delegated or scoped session is made from.
	By *keyserver.Caller

	proof   *dpop.Proof // verified
	attempt *attempt
	parent  *sessionrows.SessionRecord // of By, nil for a login without a session
}

// From describes the origin of a request.
type From struct {
	RequestID string
	Address   string // of the client, without port; empty if unknown
	For       string // the purpose that the request states
	// Stranger bounds requests without a session. Stranger is nil if the request already has a place.
	Stranger Stranger
}

// Stranger is a request whose session is not known yet.
type Stranger interface {
	// TakePlace takes a place among the strangers. Its error is the response.
	TakePlace() error
}

// String names the method and the name, and hides the secrets.
func (l Login) String() string { return string(l.Method) + " login of " + l.Name }

// Format hides the secrets from every other verb.
func (l Login) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, l.String()) }

// Info describes a session without its secret.
type Info struct {
	ID         keyserver.ID
	Kind       keyserver.SessionKind
	Principal  keyserver.Principal
	Actor      keyserver.PrincipalRef // the acting principal, zero except in a delegated session
	Objects    []keyserver.HiddenLink // keys of a scoped session, nil in every other
	Operations []keyserver.ID         // operations of a scoped session, nil in every other
	MayGrant   keyserver.Rights       // rights that a scoped session may grant
	Roles      []keyserver.Role
	BoundKey   string // RFC 7638 thumbprint, empty if the session is not bound to a key
	// BoundCertificate is the SHA-256 of the client certificate that each request must use,
	// empty for none.
	BoundCertificate []byte
	Expiry
}

// Opened is a new session with its secret, which is shown only here.
type Opened struct {
	Token string
	Info  Info
}

// String names the session's record and hides the token.
func (o Opened) String() string { return "session " + o.Info.ID.String() }

// Format hides the token from every other verb.
func (o Opened) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, o.String()) }

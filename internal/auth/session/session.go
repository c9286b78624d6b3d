// Package session turns a proof of identity into a session and a session id
// into the caller of an operation. A session id is 256 random bits; the store
// holds only its SHA-256, so a copy of the database opens no session.
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

// Login is a request to open a session. A method reads the fields that are its
// own; who calls has seen to it that no others are set.
type Login struct {
	Method    keyserver.SessionKind // a kind is named after its method
	Name      string                // password, ldap
	Password  string                // password, ldap
	Token     string                // kubernetes
	Delegator keyserver.ID          // delegated: whose rights the session is to have
	Objects   []keyserver.HiddenLink
	// Operations, by their keys, and MayGrant are of a scoped login; no operations
	// are those that use a key.
	Operations []string
	MayGrant   keyserver.Rights
	Lifetime   time.Duration // scoped; 0 is the default
	BindTo     string        // scoped: RFC 7638 thumbprint of the key that the credential is for
	From
	Proof Proof // binds the session to its key

	// Certificates are those of the TLS connection, the client's own first.
	Certificates []*x509.Certificate
	// By is the caller whose session a delegated or scoped one is made from.
	By *keyserver.Caller

	proof   *dpop.Proof // verified
	attempt *attempt
	parent  *sessionrows.SessionRecord // of By, nil where the login is not made from a session
}

// From is where a request comes from.
type From struct {
	RequestID string
	Address   string // of the client, without port; empty where it is not known
	For       string // what it says that it is made for
	// Stranger bounds requests without a session. Nil if the request holds a place already.
	Stranger Stranger
}

// Stranger is a request of which no session is known yet.
type Stranger interface {
	// TakePlace takes a place among the strangers. Its error is the response.
	TakePlace() error
}

// String names who logs in and how, and hides the secrets.
func (l Login) String() string { return string(l.Method) + " login of " + l.Name }

// Format hides the secrets from every other verb.
func (l Login) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, l.String()) }

// Info describes a session without its secret.
type Info struct {
	ID         keyserver.ID
	Kind       keyserver.SessionKind
	Principal  keyserver.Principal
	Actor      keyserver.PrincipalRef // who really acts, zero but in a delegated session
	Objects    []keyserver.HiddenLink // that a scoped session is good for, nil in every other
	Operations []keyserver.ID         // that a scoped session is good for, nil in every other
	MayGrant   keyserver.Rights       // that a scoped session may give
	Roles      []keyserver.Role
	BoundKey   string // RFC 7638 thumbprint, empty where the session is not bound to a key
	// BoundCertificate is the SHA-256 of the client certificate that each request has
	// to come with, empty where there is none.
	BoundCertificate []byte
	Expiry
}

// Opened is a new session with its secret, which is shown this once.
type Opened struct {
	Token string
	Info  Info
}

// String names the session's record and hides its token.
func (o Opened) String() string { return "session " + o.Info.ID.String() }

// Format hides the token from every other verb.
func (o Opened) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, o.String()) }

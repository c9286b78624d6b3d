// Package session turns a proof of identity into a session and a session id
// into the caller of an operation. A session id is 256 random bits; the store
// holds only its SHA-256, so a copy of the database opens no session.
package session

import (
	"fmt"
	"io"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/dpop"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// MethodPassword is the login method of password principals.
const MethodPassword = "password"

// Login is a request to open a session.
type Login struct {
	Method     string
	Name       string
	Password   string
	RemoteAddr string // host without port; throttling counts failures per address
	RequestID  string
	Proof      Proof // binds the session to its key

	proof *dpop.Proof // verified
}

// String names who logs in and how, and hides the password.
func (l Login) String() string { return l.Method + " login of " + l.Name }

// Format hides the password from every other verb.
func (l Login) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, l.String()) }

// Info describes a session without its secret.
type Info struct {
	ID            keyserver.ID
	Kind          keyserver.SessionKind
	Principal     keyserver.Principal
	Roles         []keyserver.Role
	BoundKey      string // RFC 7638 thumbprint, empty where the session is not bound to a key
	ExpiresAt     time.Time
	IdleExpiresAt time.Time
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

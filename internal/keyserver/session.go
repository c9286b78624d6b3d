package keyserver

import (
	"fmt"
	"io"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Guarded is an operation that is done outside of the key server proper, behind
// its gate.
type Guarded struct {
	Operation Operation
	Object    string // what the audit row names
	// Own: it is about nothing but the caller's own, for which no role is needed.
	Own bool
}

// PasswordChange gives a principal another password. Passwords come as hashes:
// what they are made of is no matter of the key server.
type PasswordChange struct {
	Principal ID
	// Shown is the hash of the present password, which the caller has shown to know
	// of its own account; empty where the account is another's.
	Shown string
	// Hash makes that of the new password. It is asked once the caller may.
	Hash func() (string, error)
}

// Own reports whether the account is the caller's own.
func (c PasswordChange) Own() bool { return c.Shown != "" }

// String names the principal and hides the hash.
func (c PasswordChange) String() string { return "password of " + c.Principal.Hex() }

// Format hides the hash from every other verb.
func (c PasswordChange) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, c.String()) }

// NoPassword refuses to change the password of a principal that has none here.
func NoPassword(t PrincipalType) error {
	return fault.New(fault.NoPassword, "a %s principal has no password here; whoever knows it is asked at its login", t).
		Audited(fault.ReasonInvalidArgument)
}

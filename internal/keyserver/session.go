package keyserver

import (
	"fmt"
	"io"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// ExternalOperation is an operation that the authorizer decides on, but that other code than the key server performs.
type ExternalOperation struct {
	Operation Operation
	Object    string // recorded in the audit row
	// Own reports that the operation concerns only the caller's own data and needs no role.
	Own bool
}

// PasswordChange gives a principal another password. It contains hashes because the key
// server handles no passwords.
type PasswordChange struct {
	Principal ID
	// CurrentHash is the hash of the present password, which the caller has proved that it knows. It is set for the
	// caller's own account and empty for another account.
	CurrentHash string
	// Hash returns the hash of the new password. It is called after the caller is
	// authorized.
	Hash func() (string, error)
}

// Own reports whether the account is the caller's own.
func (c PasswordChange) Own() bool { return c.CurrentHash != "" }

// String names the principal and hides the hash.
func (c PasswordChange) String() string { return "password of " + c.Principal.Hex() }

// Format hides the hash from every formatting verb.
func (c PasswordChange) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, c.String()) }

// NoPassword returns the error for a password change of a principal that has no password
// on this key server.
func NoPassword(t PrincipalType) error {
	return fault.New(fault.NoPassword, "a %s principal has no password on this key server; name a principal of another type", t).
		Audited(fault.ReasonInvalidArgument)
}

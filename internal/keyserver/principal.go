package keyserver

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// PrincipalType says how a principal proves who it is.
type PrincipalType string

// The types a listing can be asked for (contract 5.1).
const (
	PasswordPrincipal    PrincipalType = "password"
	CertificatePrincipal PrincipalType = "certificate"
	LDAPPrincipal        PrincipalType = "ldap"
	XAuthPrincipal       PrincipalType = "xauth"
	GroupPrincipal       PrincipalType = "group"
)

// PrincipalTypes lists every type, in the order messages show them.
var PrincipalTypes = []PrincipalType{
	PasswordPrincipal, CertificatePrincipal, LDAPPrincipal, XAuthPrincipal, GroupPrincipal,
}

// Flags is a principal's flag word (contract 5.2).
type Flags uint32

// The flag bits that contract 5.2 names.
const (
	FlagEnable        Flags = 0x001
	FlagSystemDefined Flags = 0x002
	FlagDelegation    Flags = 0x400
)

// Disabled is the inverse of the ENABLE bit.
func (f Flags) Disabled() bool { return f&FlagEnable == 0 }

// SystemDefined reports whether the key server skips updates of the principal.
func (f Flags) SystemDefined() bool { return f&FlagSystemDefined != 0 }

// Delegation reports whether the principal may be impersonated.
func (f Flags) Delegation() bool { return f&FlagDelegation != 0 }

// CarriesFlags reports whether principals of the type have a flag word that
// can be set. A group never logs in, so there is nothing to enable or to
// delegate: what it gives is taken away with its roles or its members.
func (t PrincipalType) CarriesFlags() bool { return t != GroupPrincipal }

// FlagChange moves the bits of Mask, in the flag word of one principal, to
// where Value has them, and no other.
type FlagChange struct {
	ID    ID
	Mask  Flags
	Value Flags
}

// Apply returns the word with the change made.
func (c FlagChange) Apply(word Flags) Flags { return word&^c.Mask | c.Value&c.Mask }

// Principal is a user, a group or a transport identity.
type Principal struct {
	ID       ID
	System   SystemID
	Type     PrincipalType
	Name     string
	Flags    Flags
	Roles    []ID
	Groups   []ID
	Identity *Identity // of an xauth principal, nil for every other type
	// Delegates alone may act with its rights, where it has the delegation flag; none
	// named means whoever may act for others. One may be gone.
	Delegates []ID
}

// MaxDelegates is how many delegates a principal may have.
const MaxDelegates = 64

// Delegate is a principal that may act with the rights of another.
type Delegate struct {
	Principal ID
	Delegate  ID
}

// Identity is what an identity provider calls an xauth principal. A token of
// that issuer and subject opens a session of it. Both are compared byte by byte.
type Identity struct {
	Issuer  string
	Subject string
	// Audiences, sorted, of which a token must name one; empty leaves it to
	// the audience that the service itself demands.
	Audiences []string
}

// ClassName returns the key server class that the wire shows for a type.
func (t PrincipalType) ClassName() string {
	switch t {
	case PasswordPrincipal:
		return "PasswordPrincipal"
	case CertificatePrincipal:
		return "CertificatePrincipal"
	case LDAPPrincipal:
		return "LDAPPrincipal"
	case XAuthPrincipal:
		return "XAuthPrincipal"
	case GroupPrincipal:
		return "GroupPrincipal"
	default:
		return ""
	}
}

// Ref returns the pair that ACL routes name the principal by.
func (p Principal) Ref() PrincipalRef { return PrincipalRef{System: p.System, ID: p.ID} }

// Bounds of a password in bytes. The upper one bounds the work of hashing it.
const (
	MinPassword = 8
	MaxPassword = 1024
)

// RefusePassword refuses what is no password. It tells nothing of it.
func RefusePassword(password string) error {
	if n := len(password); n < MinPassword || n > MaxPassword || !utf8.ValidString(password) {
		return fault.New(fault.BadRequest, "password must be %d to %d bytes of valid UTF-8", MinPassword, MaxPassword)
	}
	return nil
}

// NewPasswordPrincipal is a request to create a password principal. Password
// is wiped by nobody: callers must not keep it.
type NewPasswordPrincipal struct {
	Name     string
	Password string
	Roles    []ID
}

// String hides the password from every formatting verb.
func (n NewPasswordPrincipal) String() string { return "new password principal " + n.Name }

// Format hides the password from every other verb.
func (n NewPasswordPrincipal) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, n.String()) }

// NewPrincipal is a request to create a principal that has no secret: of type
// ldap, xauth or group. Identity is set for xauth and nil otherwise.
type NewPrincipal struct {
	Type     PrincipalType
	Name     string
	Roles    []ID
	Identity *Identity
}

// PrincipalRoles are all the roles that a principal is to hold.
type PrincipalRoles struct {
	ID    ID
	Roles []ID
}

// Departure is the end of a principal. Heir receives OWNER of the keys and the
// templates that nobody else owns; zero where there is to be nobody.
type Departure struct {
	ID   ID
	Heir ID
}

// DepartureDone says what ended with a principal.
type DepartureDone struct {
	Sessions int // with those that were made from them
	Entries  int // on keys, that had not ended before
}

// Membership is a principal in a group.
type Membership struct {
	Group  ID
	Member ID
}

// GroupFilter selects a window of a group's members, by id. Limit and Offset
// are those of PrincipalFilter.
type GroupFilter struct {
	Group  ID
	Limit  int
	Offset int
}

// MaxGroups is how many groups a principal may be in: each operation of it
// looks at the roles of all of them.
const MaxGroups = 256

// MaxPrincipalName is the longest name of a principal, in bytes: that of the
// subject of a certificate. Both databases can index it.
const MaxPrincipalName = 1024

// MaxLookup is how many principals one lookup may name.
const MaxLookup = 500

// PrincipalFilter selects principals of one type, by name.
type PrincipalFilter struct {
	Type PrincipalType
	// Prefix is where a name has to begin; no character of it is a wildcard.
	Prefix string
	// Limit 0 asks for no window; then there is no Offset either, and a key
	// server refuses to answer more than MaxUnwindowed principals.
	Limit  int
	Offset int
}

// Pattern returns the prefix as a key server matches it: what would be a
// wildcard stands for itself, and the only wildcard is at the end.
func (f PrincipalFilter) Pattern() string { return wildcards.Replace(f.Prefix) + "%" }

var wildcards = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// PrincipalPage answers a listing.
type PrincipalPage struct {
	Principals []Principal
	Pattern    string // that the names were matched against
	OrderedBy  string // the column, which is the one that is filtered on
}

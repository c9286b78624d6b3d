package keyserver

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// PrincipalType says how a principal authenticates.
type PrincipalType string

// The types that a listing can request (contract 5.1).
const (
	PasswordPrincipal    PrincipalType = "password"
	CertificatePrincipal PrincipalType = "certificate"
	LDAPPrincipal        PrincipalType = "ldap"
	XAuthPrincipal       PrincipalType = "xauth"
	GroupPrincipal       PrincipalType = "group"
)

// PrincipalTypes lists every type, in the order in which messages show them.
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

// Disabled reports whether the ENABLE bit is not set.
func (f Flags) Disabled() bool { return f&FlagEnable == 0 }

// SystemDefined reports whether the key server skips updates of the principal.
func (f Flags) SystemDefined() bool { return f&FlagSystemDefined != 0 }

// Delegation reports whether other principals may act for the principal.
func (f Flags) Delegation() bool { return f&FlagDelegation != 0 }

// CarriesFlags reports whether principals of the type have a flag word that can be set. A
// group never logs in, so it cannot be disabled or delegated. Remove its roles or members
// to end the rights that it gives.
func (t PrincipalType) CarriesFlags() bool { return t != GroupPrincipal }

// FlagChange sets the bits of Mask in the flag word of one principal to their value in
// Value. Other bits stay.
type FlagChange struct {
	ID    ID
	Mask  Flags
	Value Flags
}

// Apply returns the changed word.
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
	// Delegates may act with its rights if it has the delegation flag. If the list is
	// empty, every principal that may log in as a delegate is allowed. Listed principals
	// may have been deleted.
	Delegates []ID
}

// RefuseChange returns BUILT_IN_PRINCIPAL if the principal is system-defined.
func (p Principal) RefuseChange() error {
	if !p.Flags.SystemDefined() {
		return nil
	}
	return fault.New(fault.BuiltInPrincipal, "principal %q is system-defined and read-only; create a new principal instead", p.Name).Audited(fault.ReasonBuiltIn)
}

// MaxDelegates limits the delegates of a principal.
const MaxDelegates = 64

// Delegate is a principal that may act with the rights of another.
type Delegate struct {
	Principal ID
	Delegate  ID
}

// Identity is how an identity provider identifies an xauth principal. A token with that
// issuer and subject opens a session of the principal. Both are compared byte by byte.
type Identity struct {
	Issuer  string
	Subject string
	// Audiences are sorted. A token must contain one of them. If empty, the audience that the key server requires applies.
	Audiences []string
}

// ClassName returns the class of the type in JSON, empty for an unknown type.
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

// Ref returns the pair by which ACL routes name the principal.
func (p Principal) Ref() PrincipalRef { return PrincipalRef{System: p.System, ID: p.ID} }

// Bounds of a password in bytes. The upper bound limits the work of hashing.
const (
	MinPassword = 8
	MaxPassword = 1024
)

// RefusePassword returns an error if the password is out of bounds or not UTF-8. The error does not contain the
// password.
func RefusePassword(password string) error {
	if n := len(password); n < MinPassword || n > MaxPassword || !utf8.ValidString(password) {
		return fault.New(fault.BadRequest, "password: must be %d to %d bytes of valid UTF-8", MinPassword, MaxPassword)
	}
	return nil
}

// NewPasswordPrincipal is a request to create a password principal. Password is a string and cannot be erased from
// memory, so callers must not keep it.
type NewPasswordPrincipal struct {
	Name     string
	Password string
	Roles    []ID
}

// String returns a text without the password.
func (n NewPasswordPrincipal) String() string { return "new password principal " + n.Name }

// Format hides the password from every formatting verb.
func (n NewPasswordPrincipal) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, n.String()) }

// NewPrincipal is a request to create a principal without a secret: of type ldap, xauth
// or group. Identity is set for xauth and nil otherwise.
type NewPrincipal struct {
	Type     PrincipalType
	Name     string
	Roles    []ID
	Identity *Identity
}

// PrincipalRoles is the complete new set of roles of a principal.
type PrincipalRoles struct {
	ID    ID
	Roles []ID
}

// PrincipalDeletion is a request to delete a principal. NewOwner receives OWNER of the keys and
// templates that have no other owner; zero for no new owner.
type PrincipalDeletion struct {
	ID       ID
	NewOwner ID
}

// PrincipalDeletionResult counts the objects that ended with the deletion of a principal.
type PrincipalDeletionResult struct {
	Sessions int // including sessions made from them
	Entries  int // ACL entries that had not ended before
}

// Membership is a principal in a group.
type Membership struct {
	Group  ID
	Member ID
}

// GroupFilter selects a window of a group's members, sorted by id. Limit and Offset are
// those of PrincipalFilter.
type GroupFilter struct {
	Group  ID
	Limit  int
	Offset int
}

// MaxGroups limits the groups that a principal may be in: each operation of the principal
// checks the roles of all of them.
const MaxGroups = 256

// MaxPrincipalName is the maximum length of a principal's name in bytes, which is that of
// a certificate's subject. Both databases can index it.
const MaxPrincipalName = 1024

// MaxLookup limits the principals of one lookup.
const MaxLookup = 500

// PrincipalFilter selects principals of one type, by name.
type PrincipalFilter struct {
	Type PrincipalType
	// Prefix is the start of the name; it has no wildcards.
	Prefix string
	// Limit 0 selects all principals and requires Offset 0. The key server then refuses to return more than
	// MaxUnwindowed principals.
	Limit  int
	Offset int
}

// Pattern returns the prefix as a LIKE pattern: wildcards in the prefix are escaped, and
// the only wildcard is at the end.
func (f PrincipalFilter) Pattern() string { return wildcards.Replace(f.Prefix) + "%" }

var wildcards = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// PrincipalPage is the result of a listing.
type PrincipalPage struct {
	Principals []Principal
	Pattern    string // the pattern that the names were matched against
	OrderedBy  string // the column of filter and order
}

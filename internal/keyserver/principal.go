package keyserver

// PrincipalType says how a principal proves who it is.
type PrincipalType string

// The types a listing can be asked for (contract, Principal).
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

// Flags is a principal's flag word (contract, PrincipalFlags).
type Flags uint32

// The flag bits that the contract names.
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

// Principal is a user, a group or a transport identity.
type Principal struct {
	ID     ID
	System SystemID
	Type   PrincipalType
	Name   string
	Flags  Flags
	Roles  []ID
	Groups []ID
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

// NewPasswordPrincipal is a request to create a password principal. Password
// is wiped by nobody: callers must not keep it.
type NewPasswordPrincipal struct {
	Name     string
	Password string
	Roles    []ID
}

// String hides the password from every formatting verb.
func (n NewPasswordPrincipal) String() string { return "new password principal " + n.Name }

// GoString hides the password from %#v.
func (n NewPasswordPrincipal) GoString() string { return n.String() }

package schema

// Principal is a user, a group or a transport identity.
type Principal struct {
	ID          HexID     `json:"id" doc:"16 hexadecimal digits, the spelling of path segments."`
	PrincipalID DecimalID `json:"principalId" doc:"The same identifier in decimal, which ACL routes take."`
	SystemID    SystemID  `json:"systemId" doc:"The key server that owns the principal."`
	ClassName   string    `json:"className" doc:"The key server's class of the principal: PasswordPrincipal, CertificatePrincipal, LDAPPrincipal, XAuthPrincipal or GroupPrincipal."`
	Name        string    `json:"name"`
	Disabled    bool      `json:"disabled"`
	RoleIDs     []HexID   `json:"roleIds"`
	GroupIDs    []HexID   `json:"groupIds"`
	// The identity of an xauth principal; absent for all others.
	Issuer    string   `json:"issuer,omitzero" doc:"Of an xauth principal: who issues its tokens."`
	Subject   string   `json:"subject,omitzero" doc:"Of an xauth principal: what its tokens call it."`
	Delegates []HexID  `json:"delegates,omitzero" doc:"Who alone may act with its rights, where it has the delegation flag; absent where none is named and anybody may that may act for others."`
	Audiences []string `json:"audiences,omitzero" doc:"Of an xauth principal: of these a token must name one; empty leaves it to the audience of the service."`
	// Two other flags of the flag word, if the principal has them.
	Delegation    bool `json:"delegation,omitzero" doc:"True where a delegated login may act for the principal; absent otherwise."`
	SystemDefined bool `json:"systemDefined,omitzero" doc:"True where the key server skips updates of the principal; absent otherwise."`
}

// PrincipalQuery selects principals of one type.
type PrincipalQuery struct {
	Type   string `query:"type,required" enum:"password,certificate,ldap,xauth,group" doc:"There is no listing without a type."`
	Limit  *int   `query:"limit" limit:"1..500" doc:"Principals in a page. Left out, all are answered, unless there are more than 1024."`
	Offset *int   `query:"offset" limit:"0..9007199254740992" doc:"Principals to skip; needs limit."`
	Name   string `query:"name" limit:"1..512" doc:"Where names begin. The key server appends the wildcard; no character of it is one."`
}

// PrincipalPage is a listing of principals.
type PrincipalPage struct {
	Type       string      `json:"type" enum:"password,certificate,ldap,xauth,group"`
	ClassName  string      `json:"className" doc:"The key server's class of that type."`
	Count      int         `json:"count" doc:"Of this page. There is no total: a further page may exist only where this one came back full."`
	Principals []Principal `json:"principals"`
	Page       Page        `json:"page"`
	Detail     string      `json:"detail" doc:"For people; its wording may change."`
}

// Page describes the page of a listing in the response.
type Page struct {
	Applied   bool   `json:"applied" doc:"False where no window was asked for."`
	Limit     int    `json:"limit" doc:"As asked for; 0 where no window was."`
	Offset    int    `json:"offset" doc:"As asked for; 0 where no window was."`
	Name      string `json:"name" doc:"The prefix as it was sent."`
	Pattern   string `json:"pattern" doc:"What the key server matched names against."`
	OrderedBy string `json:"orderedBy,omitzero" doc:"The column that the window runs along."`
}

// LookupPrincipalsRequest names principals.
type LookupPrincipalsRequest struct {
	Principals []PrincipalPair `json:"principals" items:"1..500"`
}

// PrincipalPair names a principal of any key server.
type PrincipalPair struct {
	SystemID    SystemID  `json:"systemId" names:"home" doc:"The key server that owns the principal, and resolves it."`
	PrincipalID DecimalID `json:"principalId" names:"principal" doc:"In decimal."`
}

// PrincipalsFound is the response of a lookup.
type PrincipalsFound struct {
	Principals []Principal `json:"principals" doc:"In the order asked; a pair that cannot be resolved is absent."`
	Requested  int         `json:"requested" doc:"How many pairs were sent."`
	Detail     string      `json:"detail" doc:"For people; its wording may change."`
}

// CreatePasswordPrincipalRequest requests a new password principal.
type CreatePasswordPrincipalRequest struct {
	Name     string  `json:"name" limit:"1..128"`
	Password Secret  `json:"password" limit:"8..1024"`
	RoleIDs  []HexID `json:"roleIds" names:"role" items:"0..256" doc:"As GET /api/roles lists them."`
}

// CreateLDAPPrincipalRequest requests a new ldap principal.
type CreateLDAPPrincipalRequest struct {
	Name    string  `json:"name" limit:"1..128" doc:"As the directory knows it."`
	RoleIDs []HexID `json:"roleIds" names:"role" items:"0..256" doc:"As GET /api/roles lists them."`
}

// CreateXAuthPrincipalRequest requests a new xauth principal, unique by
// issuer and subject.
type CreateXAuthPrincipalRequest struct {
	Name      string   `json:"name" limit:"1..128"`
	Issuer    string   `json:"issuer" limit:"1..512" doc:"Printable ASCII, compared byte by byte with the iss of a token."`
	Subject   string   `json:"subject" limit:"1..512" doc:"Printable ASCII, compared byte by byte with the sub of a token."`
	RoleIDs   []HexID  `json:"roleIds" names:"role" items:"0..256" doc:"As GET /api/roles lists them."`
	Audiences []string `json:"audiences,omitzero" items:"0..16" limit:"1..512" doc:"Of these a token must name one; left out or empty, the audience of the service."`
}

// CreateGroupRequest requests a new group.
type CreateGroupRequest struct {
	Name    string  `json:"name" limit:"1..128"`
	RoleIDs []HexID `json:"roleIds,omitzero" names:"role" items:"0..256" doc:"What every member holds too."`
}

// PrincipalSaved is the verdict on creating a principal.
type PrincipalSaved struct {
	Saved     bool       `json:"saved" doc:"Everything sent that can be read reads back."`
	Principal *Principal `json:"principal" doc:"As read back; null where there is none."`
	Verdict
}

// Unproven returns "" if the principal reads back.
func (r PrincipalSaved) Unproven() string {
	return unshown(r.Saved && r.Principal != nil, "the principal")
}

// PrincipalFlags is a principal's flag word.
type PrincipalFlags struct {
	Flags         int64  `json:"flags" doc:"The whole word: bit 0x1 is set while the principal is enabled, 0x2 where it is system-defined, 0x400 where it may be impersonated. All other bits are kept as they are."`
	FlagsHex      string `json:"flagsHex" doc:"The same word in hexadecimal."`
	Delegation    bool   `json:"delegation" doc:"Bit 0x400: the principal may be impersonated by a delegated login."`
	Disabled      bool   `json:"disabled" doc:"The inverse of bit 0x1."`
	SystemDefined bool   `json:"systemDefined" doc:"Bit 0x2: the key server skips updates of the principal."`
}

// UpdatePrincipalFlagsRequest names the flags to change. The flag word itself cannot be
// sent, because that would clear other flags.
type UpdatePrincipalFlagsRequest struct {
	ID         HexID `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	Delegation *bool `json:"delegation,omitzero" doc:"True lets the principal be impersonated by a delegated login."`
	Disabled   *bool `json:"disabled,omitzero" doc:"True disables the principal."`
}

// PrincipalFlagsSaved is the verdict on a change of flags.
type PrincipalFlagsSaved struct {
	ID        HexID                       `json:"id"`
	Requested UpdatePrincipalFlagsRequest `json:"requested" doc:"Only the flags that were named."`
	Asked     []string                    `json:"asked" doc:"The names of those flags." enum:"delegation,disabled"`
	Saved     bool                        `json:"saved" doc:"The named flags read back and no other bit moved."`
	Before    PrincipalFlags              `json:"before" doc:"The flags before the write."`
	After     PrincipalFlags              `json:"after" doc:"As read back."`
	Verdict
}

// Unproven returns "" if the flags read back.
func (r PrincipalFlagsSaved) Unproven() string { return unshown(r.Saved, "the flags") }

// SetPasswordRequest sets a new password of a password principal.
type SetPasswordRequest struct {
	ID       HexID  `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	Password Secret `json:"password" limit:"8..1024"`
	Current  Secret `json:"current,omitzero" limit:"1..1024" doc:"The password until now: for the caller's own account, and for no other."`
}

// PasswordSaved is the verdict on setting a password.
type PasswordSaved struct {
	ID            HexID `json:"id"`
	Saved         bool  `json:"saved" doc:"What was written reads back: a hash of the password."`
	SessionsEnded int   `json:"sessionsEnded" doc:"All of the principal, the calling one where the account is the caller's own, and those that were made from them."`
	Verdict
}

// Unproven returns "" if the password reads back.
func (r PasswordSaved) Unproven() string { return unshown(r.Saved, "the password") }

// DeletePrincipalRequest deletes a principal.
type DeletePrincipalRequest struct {
	ID   HexID  `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	Heir *HexID `query:"heir" json:"-" names:"principal" doc:"Who receives OWNER of the keys and the ACL templates that nobody else owns; left out, the deletion is refused where there are any."`
}

// PrincipalGone is the verdict on deleting a principal.
type PrincipalGone struct {
	ID            HexID     `json:"id"`
	Gone          bool      `json:"gone" doc:"The principal does not read back."`
	Principal     Principal `json:"principal" doc:"As it stood."`
	SessionsEnded int       `json:"sessionsEnded" doc:"Those that were made from its sessions included."`
	EntriesClosed int       `json:"entriesClosed" doc:"Its entries on keys, whose time has ended with it."`
	Verdict
}

// Unproven returns "" if the principal is gone.
func (r PrincipalGone) Unproven() string { return unshown(r.Gone, "the deletion of the principal") }

// UpdatePrincipalRolesRequest replaces the roles of a principal.
type UpdatePrincipalRolesRequest struct {
	ID      HexID   `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	RoleIDs []HexID `json:"roleIds" names:"role" items:"0..256" doc:"The complete new set; empty takes every role away."`
}

// PrincipalRolesSaved is the verdict on replacing roles.
type PrincipalRolesSaved struct {
	ID               HexID     `json:"id"`
	RequestedRoleIDs []HexID   `json:"requestedRoleIds" doc:"What was asked for, whatever reads back."`
	Saved            bool      `json:"saved" doc:"The roles read back as the set that was sent."`
	Principal        Principal `json:"principal" doc:"As read back."`
	Verdict
}

// Unproven returns "" if the roles read back.
func (r PrincipalRolesSaved) Unproven() string { return unshown(r.Saved, "the roles") }

package schema

// Principal is a user, a group or a transport identity.
type Principal struct {
	ID          HexID     `json:"id" doc:"16 hexadecimal digits, as in paths."`
	PrincipalID DecimalID `json:"principalId" doc:"Same identifier in decimal, as in ACL routes."`
	SystemID    SystemID  `json:"systemId" doc:"System id of the key server that owns the principal."`
	ClassName   string    `json:"className" doc:"Class of the principal in the key server: PasswordPrincipal, CertificatePrincipal, LDAPPrincipal, XAuthPrincipal or GroupPrincipal."`
	Name        string    `json:"name"`
	Disabled    bool      `json:"disabled"`
	RoleIDs     []HexID   `json:"roleIds"`
	GroupIDs    []HexID   `json:"groupIds"`
	// The identity of an xauth principal; absent for all others.
	Issuer    string   `json:"issuer,omitzero" doc:"Only for an xauth principal: issuer of its tokens."`
	Subject   string   `json:"subject,omitzero" doc:"Only for an xauth principal: subject of its tokens."`
	Delegates []HexID  `json:"delegates,omitzero" doc:"Principals that may act for it if it has the delegation flag. If absent, every principal with the operation Delegated Login may."`
	Audiences []string `json:"audiences,omitzero" doc:"Only for an xauth principal: a token must name the audience of the service and, if the list is not empty, one of these audiences."`
	// Two other flags of the flag word, if the principal has them.
	Delegation    bool `json:"delegation,omitzero" doc:"True if a delegated login may act for the principal; otherwise absent."`
	SystemDefined bool `json:"systemDefined,omitzero" doc:"True if the key server skips updates of the principal; otherwise absent."`
}

// PrincipalQuery selects principals of one type.
type PrincipalQuery struct {
	Type   string `query:"type,required" enum:"PrincipalType" doc:"Type of the principals; required."`
	Limit  *int   `query:"limit" limit:"1..500" doc:"Maximum number of principals in a page. If omitted, all are returned; more than 1024 are refused."`
	Offset *int   `query:"offset" limit:"0..9007199254740992" doc:"Number of principals to skip; needs limit."`
	Name   string `query:"name" limit:"1..512" doc:"Prefix of the names. The key server appends the wildcard. No character of the prefix is a wildcard."`
}

// PrincipalPage is a listing of principals.
type PrincipalPage struct {
	Type       string      `json:"type" enum:"PrincipalType"`
	ClassName  string      `json:"className" doc:"Class of that type in the key server."`
	Count      int         `json:"count" doc:"Number of objects in this page. There is no total: another page may exist only if this one is full."`
	Principals []Principal `json:"principals"`
	Page       Page        `json:"page"`
	Detail     string      `json:"detail" doc:"Text for people; the wording may change."`
}

// Page describes the page of a listing in the response.
type Page struct {
	Applied   bool   `json:"applied" doc:"True if the request has limit."`
	Limit     int    `json:"limit" doc:"Requested value; 0 if the request has no limit."`
	Offset    int    `json:"offset" doc:"Requested value; 0 if the request has no limit."`
	Name      string `json:"name" doc:"Requested prefix."`
	Pattern   string `json:"pattern" doc:"Pattern that the key server compared names with."`
	OrderedBy string `json:"orderedBy,omitzero" doc:"Column that sorts the pages."`
}

// LookupPrincipalsRequest names principals.
type LookupPrincipalsRequest struct {
	Principals []PrincipalPair `json:"principals" items:"1..500"`
}

// PrincipalPair names a principal of any key server.
type PrincipalPair struct {
	SystemID    SystemID  `json:"systemId" names:"home" doc:"System id of the key server that owns the principal and is asked for it."`
	PrincipalID DecimalID `json:"principalId" names:"principal" doc:"In decimal."`
}

// PrincipalsFound is the response of a lookup.
type PrincipalsFound struct {
	Principals []Principal `json:"principals" doc:"Principals in the order of the request, without those that cannot be found."`
	Requested  int         `json:"requested" doc:"Number of requested pairs."`
	Detail     string      `json:"detail" doc:"Text for people; the wording may change."`
}

// CreatePasswordPrincipalRequest requests a new password principal.
type CreatePasswordPrincipalRequest struct {
	Name     string  `json:"name" limit:"1..128"`
	Password Secret  `json:"password" limit:"8..1024"`
	RoleIDs  []HexID `json:"roleIds" names:"role" items:"0..256" doc:"Role ids from GET /api/roles."`
}

// CreateLDAPPrincipalRequest requests a new ldap principal.
type CreateLDAPPrincipalRequest struct {
	Name    string  `json:"name" limit:"1..128" doc:"Name in the directory."`
	RoleIDs []HexID `json:"roleIds" names:"role" items:"0..256" doc:"Role ids from GET /api/roles."`
}

// CreateXAuthPrincipalRequest requests a new xauth principal, unique by
// issuer and subject.
type CreateXAuthPrincipalRequest struct {
	Name      string   `json:"name" limit:"1..128"`
	Issuer    string   `json:"issuer" limit:"1..512" doc:"Printable ASCII, compared byte by byte with iss of a token."`
	Subject   string   `json:"subject" limit:"1..512" doc:"Printable ASCII, compared byte by byte with sub of a token."`
	RoleIDs   []HexID  `json:"roleIds" names:"role" items:"0..256" doc:"Role ids from GET /api/roles."`
	Audiences []string `json:"audiences,omitzero" items:"0..16" limit:"1..512" doc:"A token must name the audience of the service and, if this list is not empty, one of these audiences."`
}

// CreateGroupRequest requests a new group.
type CreateGroupRequest struct {
	Name    string  `json:"name" limit:"1..128"`
	RoleIDs []HexID `json:"roleIds,omitzero" names:"role" items:"0..256" doc:"Roles that each member also has."`
}

// PrincipalSaved is the result of creating a principal.
type PrincipalSaved struct {
	Saved     bool       `json:"saved" doc:"True if the second read shows every requested value that can be read."`
	Principal *Principal `json:"principal" doc:"State from the second read; null if there is none."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the principal.
func (r PrincipalSaved) MissingEvidence() string {
	return notShown(r.Saved && r.Principal != nil, "the principal")
}

// PrincipalFlags is a principal's flag word.
type PrincipalFlags struct {
	Flags         int64  `json:"flags" doc:"Complete flag word: bit 0x1 is set while the principal is enabled, 0x2 if it is system-defined, 0x400 if delegates may act for it. All other bits stay unchanged."`
	FlagsHex      string `json:"flagsHex" doc:"Same word in hexadecimal."`
	Delegation    bool   `json:"delegation" doc:"Bit 0x400: a delegated login may act for the principal."`
	Disabled      bool   `json:"disabled" doc:"The inverse of bit 0x1."`
	SystemDefined bool   `json:"systemDefined" doc:"Bit 0x2: the key server skips updates of the principal."`
}

// UpdatePrincipalFlagsRequest names the flags to change. The flag word itself cannot be
// sent, because that would clear other flags.
type UpdatePrincipalFlagsRequest struct {
	ID         HexID `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	Delegation *bool `json:"delegation,omitzero" doc:"True allows a delegated login to act for the principal."`
	Disabled   *bool `json:"disabled,omitzero" doc:"True disables the principal."`
}

// PrincipalFlagsSaved is the result of a change of flags.
type PrincipalFlagsSaved struct {
	ID        HexID                       `json:"id"`
	Requested UpdatePrincipalFlagsRequest `json:"requested" doc:"Requested flags."`
	Asked     []string                    `json:"asked" doc:"Names of the requested flags." enum:"PrincipalFlagName"`
	Saved     bool                        `json:"saved" doc:"True if the second read shows the requested flags and no other bit changed."`
	Before    PrincipalFlags              `json:"before" doc:"Flags before the write."`
	After     PrincipalFlags              `json:"after" doc:"State from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the flags.
func (r PrincipalFlagsSaved) MissingEvidence() string { return notShown(r.Saved, "the flags") }

// SetPasswordRequest sets a new password of a password principal.
type SetPasswordRequest struct {
	ID       HexID  `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	Password Secret `json:"password" limit:"8..1024"`
	Current  Secret `json:"current,omitzero" limit:"1..1024" doc:"Current password. Required for the caller's own account, not allowed for others."`
}

// PasswordSaved is the result of setting a password.
type PasswordSaved struct {
	ID            HexID `json:"id"`
	Saved         bool  `json:"saved" doc:"True if the second read shows the written password hash."`
	SessionsEnded int   `json:"sessionsEnded" doc:"Number of ended sessions: all sessions of the principal and those made from them. For the caller's own account, this includes the calling session."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the new password.
func (r PasswordSaved) MissingEvidence() string { return notShown(r.Saved, "the password") }

// DeletePrincipalRequest deletes a principal.
type DeletePrincipalRequest struct {
	ID   HexID  `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	Heir *HexID `query:"heir" json:"-" names:"principal" doc:"Principal that gets OWNER of the keys and ACL templates that no other principal owns. If there are any and heir is omitted, the deletion is refused."`
}

// PrincipalGone is the result of deleting a principal.
type PrincipalGone struct {
	ID            HexID     `json:"id"`
	Gone          bool      `json:"gone" doc:"True if the second read no longer shows the principal."`
	Principal     Principal `json:"principal" doc:"State before the deletion."`
	SessionsEnded int       `json:"sessionsEnded" doc:"Number of ended sessions, including those made from its sessions."`
	EntriesClosed int       `json:"entriesClosed" doc:"Number of its ACL entries on keys, which ended with the deletion."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the principal.
func (r PrincipalGone) MissingEvidence() string {
	return notShown(r.Gone, "the deletion of the principal")
}

// UpdatePrincipalRolesRequest replaces the roles of a principal.
type UpdatePrincipalRolesRequest struct {
	ID      HexID   `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	RoleIDs []HexID `json:"roleIds" names:"role" items:"0..256" doc:"Complete new set. An empty set removes every role."`
}

// PrincipalRolesSaved is the result of replacing roles.
type PrincipalRolesSaved struct {
	ID               HexID     `json:"id"`
	RequestedRoleIDs []HexID   `json:"requestedRoleIds" doc:"Requested roles, even if the second read differs."`
	Saved            bool      `json:"saved" doc:"True if the second read shows exactly the requested roles."`
	Principal        Principal `json:"principal" doc:"State from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the roles.
func (r PrincipalRolesSaved) MissingEvidence() string { return notShown(r.Saved, "the roles") }

package schema

// Principal is a user, a group or a transport identity.
type Principal struct {
	ID          HexID     `json:"id" doc:"16 hexadecimal digits, the spelling of path segments."`
	PrincipalID DecimalID `json:"principalId" doc:"The same identifier in decimal, which ACL routes take."`
	SystemID    SystemID  `json:"systemId" doc:"The key server that owns the principal."`
	ClassName   string    `json:"className"`
	Name        string    `json:"name"`
	Disabled    bool      `json:"disabled"`
	RoleIDs     []HexID   `json:"roleIds"`
	GroupIDs    []HexID   `json:"groupIds"`
}

// CreatePasswordPrincipalRequest asks for a new password principal.
type CreatePasswordPrincipalRequest struct {
	Name     string  `json:"name" limit:"1..128"`
	Password Secret  `json:"password" limit:"8..1024"`
	RoleIDs  []HexID `json:"roleIds" items:"0..256" doc:"As GET /api/roles lists them."`
}

// PrincipalSaved is the verdict on creating a principal.
type PrincipalSaved struct {
	Saved     bool       `json:"saved" doc:"Name, type and roles read back."`
	Principal *Principal `json:"principal" doc:"As read back; null where there is none."`
	Verdict
}

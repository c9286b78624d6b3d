package schema

// PrincipalTrust says what one peer learns about one principal.
type PrincipalTrust struct {
	ID                    HexID     `json:"id"`
	PrincipalID           *HexID    `json:"principalId" doc:"16 hexadecimal digits, as the request that made the row spells it."`
	TrustedServerID       *HexID    `json:"trustedServerId" doc:"The peer's system id in 16 hexadecimal digits."`
	TrustedServerSystemID *SystemID `json:"trustedServerSystemId" doc:"The same number. The peer may no longer be registered."`
	Flag                  *int      `json:"flag" doc:"1 restrict, 2 expose. A peer is told about a principal only where a row exposes it."`
	FlagLabel             *string   `json:"flagLabel" enum:"restrict,expose" doc:"The same in words."`
}

// PrincipalTrustsQuery selects principal trusts.
type PrincipalTrustsQuery struct {
	PrincipalID           *HexID    `query:"principalId" names:"principal" doc:"Only those of this principal; 16 hexadecimal digits."`
	TrustedServerSystemID *SystemID `query:"trustedServerSystemId" names:"peer" doc:"Only those for this peer, registered or not."`
	Limit                 *int      `query:"limit" limit:"1..500" doc:"Longest page; left out, everything is answered, which is refused above 1024 rows."`
	Offset                *int      `query:"offset" limit:"0..2147483647" doc:"Rows to skip; needs limit."`
}

// PrincipalTrustList is the response of GET /api/principal-trusts.
type PrincipalTrustList struct {
	Count           int              `json:"count" doc:"Of the rows in this answer. A page that is full may have a next one."`
	PrincipalTrusts []PrincipalTrust `json:"principalTrusts" doc:"By id."`
}

// CreatePrincipalTrustRequest requests the row of a principal and a peer.
type CreatePrincipalTrustRequest struct {
	PrincipalID           HexID    `json:"principalId" names:"principal" doc:"16 hexadecimal digits."`
	TrustedServerSystemID SystemID `json:"trustedServerSystemId" names:"peer" doc:"Of a registered peer."`
	Flag                  string   `json:"flag" enum:"restrict,expose"`
}

// UpdatePrincipalTrustRequest changes the flag of a row.
type UpdatePrincipalTrustRequest struct {
	ID   HexID  `path:"id" json:"-" names:"principalTrust" doc:"16 hexadecimal digits."`
	Flag string `json:"flag" enum:"restrict,expose"`
}

// PrincipalTrustSaved is the verdict on creating or changing a row.
type PrincipalTrustSaved struct {
	PrincipalTrust *PrincipalTrust `json:"principalTrust" doc:"As read back; null where there is none."`
	Saved          bool            `json:"saved" doc:"Principal, peer and flag read back."`
	Verdict
}

// Unproven returns "" if the row reads back.
func (r PrincipalTrustSaved) Unproven() string {
	return unshown(r.Saved && r.PrincipalTrust != nil, "the principal trust")
}

// PrincipalTrustGone is the verdict on deleting a row.
type PrincipalTrustGone struct {
	ID             HexID          `json:"id"`
	Gone           bool           `json:"gone" doc:"A fresh read no longer finds the row."`
	PrincipalTrust PrincipalTrust `json:"principalTrust" doc:"As it stood before the deletion."`
	Verdict
}

// Unproven returns "" if the row is gone.
func (r PrincipalTrustGone) Unproven() string { return ungone(r.Gone, "the principal trust") }

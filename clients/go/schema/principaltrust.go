package schema

// PrincipalTrust says what one peer learns about one principal.
type PrincipalTrust struct {
	ID                    HexID     `json:"id"`
	PrincipalID           *HexID    `json:"principalId" doc:"16 hexadecimal digits, as in the request that created the row."`
	TrustedServerID       *HexID    `json:"trustedServerId" doc:"System id of the peer, in 16 hexadecimal digits."`
	TrustedServerSystemID *SystemID `json:"trustedServerSystemId" doc:"Same system id as a number. The peer may no longer be registered."`
	Flag                  *int      `json:"flag" doc:"1 restrict, 2 expose. A peer learns of a principal only if a row exposes it."`
	FlagLabel             *string   `json:"flagLabel" enum:"PrincipalTrustFlag" doc:"Name of that number."`
}

// PrincipalTrustsQuery selects principal trusts.
type PrincipalTrustsQuery struct {
	PrincipalID           *HexID    `query:"principalId" names:"principal" doc:"Return only rows of this principal; 16 hexadecimal digits."`
	TrustedServerSystemID *SystemID `query:"trustedServerSystemId" names:"peer" doc:"Return only rows for this peer, registered or not."`
	Limit                 *int      `query:"limit" limit:"1..500" doc:"Maximum number of rows in a page. If omitted, all are returned; more than 1024 are refused."`
	Offset                *int      `query:"offset" limit:"0..2147483647" doc:"Number of rows to skip; needs limit."`
}

// PrincipalTrustList is the response of GET /api/principal-trusts.
type PrincipalTrustList struct {
	Count           int              `json:"count" doc:"Number of rows in this response. If a page is full, there may be another one."`
	PrincipalTrusts []PrincipalTrust `json:"principalTrusts" doc:"Rows, sorted by id."`
}

// CreatePrincipalTrustRequest requests the row of a principal and a peer.
type CreatePrincipalTrustRequest struct {
	PrincipalID           HexID    `json:"principalId" names:"principal" doc:"16 hexadecimal digits."`
	TrustedServerSystemID SystemID `json:"trustedServerSystemId" names:"peer" doc:"System id of a registered peer."`
	Flag                  string   `json:"flag" enum:"PrincipalTrustFlag"`
}

// UpdatePrincipalTrustRequest changes the flag of a principal trust.
type UpdatePrincipalTrustRequest struct {
	ID   HexID  `path:"id" json:"-" names:"principalTrust" doc:"16 hexadecimal digits."`
	Flag string `json:"flag" enum:"PrincipalTrustFlag"`
}

// PrincipalTrustSaved is the result of creating or changing a principal trust.
type PrincipalTrustSaved struct {
	PrincipalTrust *PrincipalTrust `json:"principalTrust" doc:"State from the second read; null if there is none."`
	Saved          bool            `json:"saved" doc:"True if the second read shows the principal, the peer and the flag."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the principal trust.
func (r PrincipalTrustSaved) MissingEvidence() string {
	return notShown(r.Saved && r.PrincipalTrust != nil, "the principal trust")
}

// PrincipalTrustGone is the result of deleting a principal trust.
type PrincipalTrustGone struct {
	ID             HexID          `json:"id"`
	Gone           bool           `json:"gone" doc:"True if the second read no longer shows the row."`
	PrincipalTrust PrincipalTrust `json:"principalTrust" doc:"State before the deletion."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the principal trust.
func (r PrincipalTrustGone) MissingEvidence() string {
	return notDeleted(r.Gone, "the principal trust")
}

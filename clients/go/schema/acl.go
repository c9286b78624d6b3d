package schema

// ACLChangeRequest requests rights on a key for a principal.
type ACLChangeRequest struct {
	TTag        HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
	SystemID    SystemID   `json:"systemId" names:"home" doc:"System id of the key server that owns the principal. With a wrong value, the request names a principal that does not exist."`
	PrincipalID DecimalID  `json:"principalId" names:"principal" doc:"In decimal."`
	Rights      Rights     `json:"rights" doc:"Bitmask or names. The key server adds implied rights: WRITE adds READ, OWNER adds both."`
	// MaxUsage is a pointer because 0 is a limit.
	MaxUsage  *int64 `json:"maxUsage,omitzero" limit:"-1..9007199254740992" doc:"Number of uses that the entry allows; -1 or omitted: no limit."`
	StartTime *Stamp `json:"startTime,omitzero" doc:"Raw time; unset if omitted."`
	EndTime   *Stamp `json:"endTime,omitzero" doc:"Raw time; unset if omitted."`
}

// ACLRevokeRequest names an ACL entry to remove.
type ACLRevokeRequest struct {
	TTag        HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
	SystemID    SystemID   `json:"systemId" names:"home"`
	PrincipalID DecimalID  `json:"principalId" names:"principal" doc:"In decimal."`
}

// ACLEntry has the rights of one principal on one key.
type ACLEntry struct {
	PrincipalID    DecimalID `json:"principalId"`
	SystemID       SystemID  `json:"systemId"`
	ACLEntryID     Base64ID  `json:"aclEntryId" doc:"Opaque identifier."`
	ACLID          Base64ID  `json:"aclId" doc:"Opaque identifier."`
	Rights         Rights    `json:"rights" doc:"Rights that the entry has, with the implied ones. Test with a mask, never for equality."`
	RightNames     []string  `json:"rightNames" enum:"RightName" doc:"Names of the bits that are set in rights."`
	MaxUsage       int64     `json:"maxUsage" doc:"Number of uses that the entry allows; -1: no limit."`
	UserRight      int64     `json:"userRight" doc:"Number that is stored with the entry and has no effect; 0 in entries that this key server created."`
	StartTime      Stamp     `json:"startTime" doc:"Time from which the entry gives rights."`
	StartTimeUnset bool      `json:"startTimeUnset" doc:"True if startTime is all zero."`
	EndTime        Stamp     `json:"endTime" doc:"Time until which the entry gives rights."`
	EndTimeUnset   bool      `json:"endTimeUnset" doc:"True if endTime is all zero."`
}

// ACLLink is the hidden link as the ACL stores it. Clients must not depend on the form of the link; they use the ttag
// that they sent.
type ACLLink struct {
	SystemID SystemID   `json:"systemId" doc:"System id of the key server that owns the key."`
	TTag     HiddenLink `json:"ttag" doc:"Hidden link of the key on that key server."`
}

// ACLInfo is the access control list of one key.
type ACLInfo struct {
	ACLID      Base64ID   `json:"aclId"`
	HiddenLink ACLLink    `json:"hiddenLink" doc:"Key that the ACL belongs to."`
	Expired    bool       `json:"expired" doc:"True if the time of at least one entry has ended. Such an entry gives its principal no rights."`
	EntryCount int        `json:"entryCount"`
	Entries    []ACLEntry `json:"entries"`
}

// ACLResponse is the result of the ACL routes. It contains the requested rights and, separately, the rights that the
// second read shows.
type ACLResponse struct {
	Operation           string    `json:"operation" doc:"Operation that was sent to the key server."`
	Verified            bool      `json:"verified" doc:"True if the second read shows the requested change."`
	RequestedRights     *Rights   `json:"requestedRights" doc:"Null for a read and for a revocation."`
	RequestedRightNames *[]string `json:"requestedRightNames" doc:"Null for a read and for a revocation."`
	Entry               *ACLEntry `json:"entry" doc:"Entry of the principal from the second read. After a revocation it must be null."`
	ACL                 ACLInfo   `json:"acl"`
	Verdict
}

// MissingEvidence returns "" if the second read shows the ACL as requested, with the granted rights.
func (r ACLResponse) MissingEvidence() string {
	return notShown(r.Verified && (r.RequestedRights == nil || r.Entry != nil), "the list")
}

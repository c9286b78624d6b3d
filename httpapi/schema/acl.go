package schema

// ACLChangeRequest asks for rights over a key.
type ACLChangeRequest struct {
	TTag        HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
	SystemID    SystemID   `json:"systemId" names:"home" doc:"The key server that owns the principal; a wrong one names a principal that does not exist."`
	PrincipalID DecimalID  `json:"principalId" names:"principal" doc:"In decimal."`
	Rights      Rights     `json:"rights" doc:"Bitmask or names. The key server widens it: WRITE adds READ, OWNER adds both."`
	// MaxUsage is a pointer because 0 is a limit.
	MaxUsage  *int64 `json:"maxUsage,omitzero" limit:"-1..9007199254740992" doc:"How many grants the entry is good for; left out or -1, any number."`
	StartTime *Stamp `json:"startTime,omitzero" doc:"Raw stamp; left out, unset."`
	EndTime   *Stamp `json:"endTime,omitzero" doc:"Raw stamp; left out, unset."`
}

// ACLRevokeRequest names an entry.
type ACLRevokeRequest struct {
	TTag        HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
	SystemID    SystemID   `json:"systemId" names:"home"`
	PrincipalID DecimalID  `json:"principalId" names:"principal" doc:"In decimal."`
}

// ACLEntry is one principal's rights over one key.
type ACLEntry struct {
	PrincipalID    DecimalID `json:"principalId"`
	SystemID       SystemID  `json:"systemId"`
	ACLEntryID     Base64ID  `json:"aclEntryId" doc:"Opaque handle."`
	ACLID          Base64ID  `json:"aclId" doc:"Opaque handle."`
	Rights         Rights    `json:"rights" doc:"As held, widened: test with a mask, never for equality."`
	RightNames     []string  `json:"rightNames" enum:"OWNER,READ,WRITE,MANDATORY_GROUP,HOST_MATRIX" doc:"The bits of rights that are set, by name."`
	MaxUsage       int64     `json:"maxUsage" doc:"-1 means no limit."`
	UserRight      int64     `json:"userRight" doc:"A word that is kept with the entry and decides nothing; 0 in entries that this key server made."`
	StartTime      Stamp     `json:"startTime" doc:"When the entry begins to give rights."`
	StartTimeUnset bool      `json:"startTimeUnset" doc:"startTime is all zero."`
	EndTime        Stamp     `json:"endTime" doc:"When the entry ceases to give rights."`
	EndTimeUnset   bool      `json:"endTimeUnset" doc:"endTime is all zero."`
}

// ACLLink is the hidden link as the ACL stores it. Clients must not depend on its form,
// and use the ttag that they sent.
type ACLLink struct {
	SystemID SystemID   `json:"systemId" doc:"The key server of the key."`
	TTag     HiddenLink `json:"ttag" doc:"Its hidden link there."`
}

// ACLInfo is the access control list of one key.
type ACLInfo struct {
	ACLID      Base64ID   `json:"aclId"`
	HiddenLink ACLLink    `json:"hiddenLink" doc:"The key that the list belongs to."`
	Expired    bool       `json:"expired" doc:"The time of at least one entry has ended; such an entry gives its principal nothing."`
	EntryCount int        `json:"entryCount"`
	Entries    []ACLEntry `json:"entries"`
}

// ACLResponse is the verdict of the ACL routes. It contains the requested rights and,
// separately, those that read back.
type ACLResponse struct {
	Operation           string    `json:"operation" doc:"The key server operation that was sent."`
	Verified            bool      `json:"verified" doc:"The read-back shows what was asked for."`
	RequestedRights     *Rights   `json:"requestedRights" doc:"Null on a read and on a revocation."`
	RequestedRightNames *[]string `json:"requestedRightNames" doc:"Null on a read and on a revocation."`
	Entry               *ACLEntry `json:"entry" doc:"The principal's entry as read back; null is what a revocation wants."`
	ACL                 ACLInfo   `json:"acl"`
	Verdict
}

// Unproven returns "" if the ACL reads back as requested and has the granted rights.
func (r ACLResponse) Unproven() string {
	return unshown(r.Verified && (r.RequestedRights == nil || r.Entry != nil), "the list")
}

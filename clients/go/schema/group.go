package schema

// GroupMemberRequest names a principal in a group.
type GroupMemberRequest struct {
	Group  HexID `path:"gid" json:"-" names:"group" doc:"Id of the group, 16 hexadecimal digits."`
	Member HexID `path:"pid" json:"-" names:"principal" doc:"Id of the principal, 16 hexadecimal digits."`
}

// ListGroupMembersRequest requests a page of a group's members.
type ListGroupMembersRequest struct {
	Group  HexID `path:"gid" json:"-" names:"group" doc:"Id of the group, 16 hexadecimal digits."`
	Limit  *int  `query:"limit" limit:"1..500" doc:"Maximum number of members in a page. If omitted, all are returned; more than 1024 are refused."`
	Offset *int  `query:"offset" limit:"0..9007199254740992" doc:"Number of members to skip; needs limit."`
}

// GroupMembers lists the members of a group, sorted by id.
type GroupMembers struct {
	GroupID HexID       `json:"groupId"`
	Count   int         `json:"count" doc:"Number of objects in this page. There is no total: another page may exist only if this one is full."`
	Members []Principal `json:"members"`
	Page    MembersPage `json:"page"`
	Detail  string      `json:"detail" doc:"Text for people; the wording may change."`
}

// MembersPage describes the page of members in the response.
type MembersPage struct {
	Applied   bool   `json:"applied" doc:"True if the request has limit."`
	Limit     int    `json:"limit" doc:"Requested value; 0 if the request has no limit."`
	Offset    int    `json:"offset" doc:"Requested value; 0 if the request has no limit."`
	OrderedBy string `json:"orderedBy,omitzero" doc:"Column that sorts the pages."`
}

// GroupMemberSaved is the result of adding a principal to a group.
type GroupMemberSaved struct {
	GroupID HexID     `json:"groupId"`
	Saved   bool      `json:"saved" doc:"True if the second read shows the principal as a member."`
	Member  Principal `json:"member" doc:"State from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the member.
func (r GroupMemberSaved) MissingEvidence() string { return notShown(r.Saved, "the member") }

// GroupMemberGone is the result of removing a principal from a group.
type GroupMemberGone struct {
	GroupID HexID     `json:"groupId"`
	Gone    bool      `json:"gone" doc:"True if the second read no longer shows the principal as a member."`
	Member  Principal `json:"member" doc:"State from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the member.
func (r GroupMemberGone) MissingEvidence() string { return notDeleted(r.Gone, "the member") }

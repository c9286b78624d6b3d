package schema

// GroupMemberRequest names a principal in a group.
type GroupMemberRequest struct {
	Group  HexID `path:"gid" json:"-" names:"group" doc:"The group, in 16 hexadecimal digits."`
	Member HexID `path:"pid" json:"-" names:"principal" doc:"The principal, in 16 hexadecimal digits."`
}

// ListGroupMembersRequest requests a page of a group's members.
type ListGroupMembersRequest struct {
	Group  HexID `path:"gid" json:"-" names:"group" doc:"The group, in 16 hexadecimal digits."`
	Limit  *int  `query:"limit" limit:"1..500" doc:"Members in a page. Left out, all are answered, unless there are more than 1024."`
	Offset *int  `query:"offset" limit:"0..9007199254740992" doc:"Members to skip; needs limit."`
}

// GroupMembers lists the members of a group, sorted by id.
type GroupMembers struct {
	GroupID HexID       `json:"groupId"`
	Count   int         `json:"count" doc:"Of this page. There is no total: a further page may exist only where this one came back full."`
	Members []Principal `json:"members"`
	Page    MembersPage `json:"page"`
	Detail  string      `json:"detail" doc:"For people; its wording may change."`
}

// MembersPage describes the page of members in the response.
type MembersPage struct {
	Applied   bool   `json:"applied" doc:"False where no window was asked for."`
	Limit     int    `json:"limit" doc:"As asked for; 0 where no window was."`
	Offset    int    `json:"offset" doc:"As asked for; 0 where no window was."`
	OrderedBy string `json:"orderedBy,omitzero" doc:"The column that the window runs along."`
}

// GroupMemberSaved is the verdict on adding a principal to a group.
type GroupMemberSaved struct {
	GroupID HexID     `json:"groupId"`
	Saved   bool      `json:"saved" doc:"The principal reads back as a member."`
	Member  Principal `json:"member" doc:"As read back."`
	Verdict
}

// Unproven returns "" if the member reads back.
func (r GroupMemberSaved) Unproven() string { return unshown(r.Saved, "the member") }

// GroupMemberGone is the verdict on removing a principal from a group.
type GroupMemberGone struct {
	GroupID HexID     `json:"groupId"`
	Gone    bool      `json:"gone" doc:"The principal reads back as no member."`
	Member  Principal `json:"member" doc:"As read back."`
	Verdict
}

// Unproven returns "" if the member is gone.
func (r GroupMemberGone) Unproven() string { return ungone(r.Gone, "the member") }

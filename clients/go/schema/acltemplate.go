package schema

import (
	"cmp"
	"strings"
)

// ACLTemplate is a named list of members. They get ACL entries for each key that is
// created under a templated directory with the template.
type ACLTemplate struct {
	ID            HexID  `json:"id"`
	Name          string `json:"name"`
	MemberCount   int    `json:"memberCount"`
	Writable      bool   `json:"writable" doc:"True if the caller is a member with WRITE and may change the template."`
	MembersDigest string `json:"membersDigest,omitzero" doc:"Present with includeDigests. The value changes if the members change. Compare it only with digest of GET /api/acl-templates/{id}/members."`
}

// ACLTemplateQuery selects the details of a list of templates.
type ACLTemplateQuery struct {
	IncludeDigests bool `query:"includeDigests" doc:"Also return membersDigest of each template."`
}

// ACLTemplateList is the response of GET /api/acl-templates.
type ACLTemplateList struct {
	Count     int           `json:"count"`
	Templates []ACLTemplate `json:"templates"`
}

// ACLTemplateRequest has the name of a new template, or a new name.
type ACLTemplateRequest struct {
	Name string `json:"name" limit:"1..128" trim:"true" doc:"Spaces at the beginning and end are removed."`
}

// RenameACLTemplateRequest renames a template.
type RenameACLTemplateRequest struct {
	ID HexID `path:"id" json:"-" names:"template" doc:"16 hexadecimal digits."`
	ACLTemplateRequest
}

// ACLTemplateSaved is the result of creating or renaming a template.
type ACLTemplateSaved struct {
	ID        HexID        `json:"id"`
	Requested string       `json:"requested" doc:"Requested name, without spaces at the beginning and end."`
	Saved     bool         `json:"saved" doc:"True if the second read shows the name."`
	Missing   bool         `json:"missing,omitzero" doc:"True if the second read does not show the template."`
	Template  *ACLTemplate `json:"template" doc:"State from the second read; null if missing."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the template.
func (r ACLTemplateSaved) MissingEvidence() string {
	return notShown(r.Saved && r.Template != nil, "the template")
}

// Mismatch returns "" if the second read shows the template as requested.
func (r ACLTemplateRequest) Mismatch(answer ACLTemplateSaved) string {
	return mismatchWith(answer.Template.Name == strings.TrimSpace(r.Name), "the template")
}

// Mismatch returns "" if the second read shows the template as requested.
func (r RenameACLTemplateRequest) Mismatch(answer ACLTemplateSaved) string {
	return cmp.Or(mismatchWith(answer.Template.ID == r.ID, "the template"), r.ACLTemplateRequest.Mismatch(answer))
}

// ACLTemplateGone is the result of deleting a template.
type ACLTemplateGone struct {
	ID       HexID       `json:"id"`
	Gone     bool        `json:"gone" doc:"True if the second read no longer shows the template."`
	Template ACLTemplate `json:"template" doc:"State before the deletion."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the template.
func (r ACLTemplateGone) MissingEvidence() string { return notDeleted(r.Gone, "the template") }

// TemplateMemberRequest requests a membership.
type TemplateMemberRequest struct {
	SystemID    SystemID  `json:"systemId" names:"home" doc:"System id of the key server that owns the principal."`
	PrincipalID DecimalID `json:"principalId" names:"principal" doc:"In decimal."`
	Rights      Rights    `json:"rights" doc:"Bitmask or names. The key server adds implied rights: WRITE adds READ, OWNER adds both."`
	// MaxUsage is a pointer because 0 is a limit.
	MaxUsage  *int64 `json:"maxUsage,omitzero" limit:"-1..9007199254740992" doc:"Number of uses that an ACL entry created from the member allows; -1 or omitted: no limit."`
	StartTime *Stamp `json:"startTime,omitzero" doc:"Raw time; unset if omitted."`
	EndTime   *Stamp `json:"endTime,omitzero" doc:"Raw time; unset if omitted."`
}

// SetACLTemplateMemberRequest requests a membership of a template.
type SetACLTemplateMemberRequest struct {
	ID HexID `path:"id" json:"-" names:"template" doc:"16 hexadecimal digits."`
	TemplateMemberRequest
}

// RemoveACLTemplateMemberRequest names a member of a template.
type RemoveACLTemplateMemberRequest struct {
	ID          HexID     `path:"id" json:"-" names:"template" doc:"16 hexadecimal digits."`
	SystemID    SystemID  `path:"systemId" json:"-" names:"home" doc:"In decimal."`
	PrincipalID DecimalID `path:"principalId" json:"-" names:"principal" doc:"In decimal."`
}

// TemplateMember has the rights of one principal in a template.
type TemplateMember struct {
	PrincipalID    DecimalID `json:"principalId"`
	SystemID       SystemID  `json:"systemId"`
	Rights         Rights    `json:"rights" doc:"Rights that the entry has, with the implied ones. Test with a mask, never for equality."`
	RightNames     []string  `json:"rightNames" enum:"RightName" doc:"Names of the bits that are set in rights."`
	MaxUsage       int64     `json:"maxUsage" doc:"Number of uses that the entry allows; -1: no limit."`
	StartTime      Stamp     `json:"startTime" doc:"Time from which an ACL entry created from the member gives rights."`
	StartTimeUnset bool      `json:"startTimeUnset" doc:"True if startTime is all zero."`
	EndTime        Stamp     `json:"endTime" doc:"Time until which an ACL entry created from the member gives rights."`
	EndTimeUnset   bool      `json:"endTimeUnset" doc:"True if endTime is all zero."`
}

// TemplateMemberList is the response of GET /api/acl-templates/{id}/members.
type TemplateMemberList struct {
	ID       HexID            `json:"id" doc:"Id of the template."`
	Count    int              `json:"count"`
	Members  []TemplateMember `json:"members"`
	Writable bool             `json:"writable" doc:"True if the caller is a member with WRITE and may change the members."`
	Digest   string           `json:"digest" doc:"Same value as membersDigest of GET /api/acl-templates. A client that knows the members can detect with it that they did not change."`
}

// TemplateMemberSaved is the result of setting a member.
type TemplateMemberSaved struct {
	ID                  HexID            `json:"id" doc:"Id of the template."`
	RequestedRights     Rights           `json:"requestedRights" doc:"Requested rights."`
	RequestedRightNames []string         `json:"requestedRightNames" enum:"RightName" doc:"Names of the bits that are set in requestedRights."`
	Saved               bool             `json:"saved" doc:"True if the second read shows the limits and at least the requested rights."`
	Missing             bool             `json:"missing,omitzero" doc:"True if the second read does not show the member."`
	Member              *TemplateMember  `json:"member" doc:"State from the second read; null if missing."`
	Members             []TemplateMember `json:"members" doc:"All members from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the member.
func (r TemplateMemberSaved) MissingEvidence() string {
	return notShown(r.Saved && r.Member != nil, "the member")
}

// Mismatch returns "" if the second read shows the member as requested.
func (r SetACLTemplateMemberRequest) Mismatch(answer TemplateMemberSaved) string {
	got := answer.Member
	return mismatchWith(answer.ID == r.ID && got.SystemID == r.SystemID && got.PrincipalID == r.PrincipalID && got.Rights&r.Rights == r.Rights, "the member")
}

// TemplateMemberGone is the result of removing a member.
type TemplateMemberGone struct {
	ID          HexID            `json:"id" doc:"Id of the template."`
	SystemID    SystemID         `json:"systemId"`
	PrincipalID DecimalID        `json:"principalId"`
	Gone        bool             `json:"gone" doc:"True if the second read no longer shows the member."`
	Members     []TemplateMember `json:"members" doc:"Remaining members from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the member.
func (r TemplateMemberGone) MissingEvidence() string { return notDeleted(r.Gone, "the member") }

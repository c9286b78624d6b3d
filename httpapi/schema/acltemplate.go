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
	Writable      bool   `json:"writable" doc:"The caller is a member that holds WRITE, and may change the template."`
	MembersDigest string `json:"membersDigest,omitzero" doc:"With includeDigests: another value once the members are others. It compares with digest of GET /api/acl-templates/{id}/members, and means nothing else."`
}

// ACLTemplateQuery selects the details of a list of templates.
type ACLTemplateQuery struct {
	IncludeDigests bool `query:"includeDigests" doc:"Also answer each template's membersDigest."`
}

// ACLTemplateList is the response of GET /api/acl-templates.
type ACLTemplateList struct {
	Count     int           `json:"count"`
	Templates []ACLTemplate `json:"templates"`
}

// ACLTemplateRequest has the name of a new template, or a new name.
type ACLTemplateRequest struct {
	Name string `json:"name" limit:"1..128" trim:"true" doc:"Trimmed before use."`
}

// RenameACLTemplateRequest renames a template.
type RenameACLTemplateRequest struct {
	ID HexID `path:"id" json:"-" names:"template" doc:"16 hexadecimal digits."`
	ACLTemplateRequest
}

// ACLTemplateSaved is the verdict on creating or renaming a template.
type ACLTemplateSaved struct {
	ID        HexID        `json:"id"`
	Requested string       `json:"requested" doc:"The name that was sent, trimmed."`
	Saved     bool         `json:"saved" doc:"The name reads back."`
	Missing   bool         `json:"missing,omitzero" doc:"The fresh read has no such template."`
	Template  *ACLTemplate `json:"template" doc:"As read back; null when missing."`
	Verdict
}

// Unproven returns "" if the template reads back.
func (r ACLTemplateSaved) Unproven() string {
	return unshown(r.Saved && r.Template != nil, "the template")
}

// Unlike returns "" if the template reads back as requested.
func (r ACLTemplateRequest) Unlike(answer ACLTemplateSaved) string {
	return otherwise(answer.Template.Name == strings.TrimSpace(r.Name), "the template")
}

// Unlike returns "" if the template reads back as requested.
func (r RenameACLTemplateRequest) Unlike(answer ACLTemplateSaved) string {
	return cmp.Or(otherwise(answer.Template.ID == r.ID, "the template"), r.ACLTemplateRequest.Unlike(answer))
}

// ACLTemplateGone is the verdict on deleting a template.
type ACLTemplateGone struct {
	ID       HexID       `json:"id"`
	Gone     bool        `json:"gone" doc:"A fresh read no longer lists the template."`
	Template ACLTemplate `json:"template" doc:"As it stood before the deletion."`
	Verdict
}

// Unproven returns "" if the template is gone.
func (r ACLTemplateGone) Unproven() string { return ungone(r.Gone, "the template") }

// TemplateMemberRequest requests a membership.
type TemplateMemberRequest struct {
	SystemID    SystemID  `json:"systemId" names:"home" doc:"The key server that owns the principal."`
	PrincipalID DecimalID `json:"principalId" names:"principal" doc:"In decimal."`
	Rights      Rights    `json:"rights" doc:"Bitmask or names. The key server widens it: WRITE adds READ, OWNER adds both."`
	// MaxUsage is a pointer because 0 is a limit.
	MaxUsage  *int64 `json:"maxUsage,omitzero" limit:"-1..9007199254740992" doc:"How many grants an entry made of it is good for; left out or -1, any number."`
	StartTime *Stamp `json:"startTime,omitzero" doc:"Raw stamp; left out, unset."`
	EndTime   *Stamp `json:"endTime,omitzero" doc:"Raw stamp; left out, unset."`
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

// TemplateMember is one principal's rights in a template.
type TemplateMember struct {
	PrincipalID    DecimalID `json:"principalId"`
	SystemID       SystemID  `json:"systemId"`
	Rights         Rights    `json:"rights" doc:"As held, widened: test with a mask, never for equality."`
	RightNames     []string  `json:"rightNames" enum:"OWNER,READ,WRITE,MANDATORY_GROUP,HOST_MATRIX" doc:"The bits of rights that are set, by name."`
	MaxUsage       int64     `json:"maxUsage" doc:"-1 means no limit."`
	StartTime      Stamp     `json:"startTime" doc:"When an entry made of it begins to give rights."`
	StartTimeUnset bool      `json:"startTimeUnset" doc:"startTime is all zero."`
	EndTime        Stamp     `json:"endTime" doc:"When an entry made of it ceases to give rights."`
	EndTimeUnset   bool      `json:"endTimeUnset" doc:"endTime is all zero."`
}

// TemplateMemberList is the response of GET /api/acl-templates/{id}/members.
type TemplateMemberList struct {
	ID       HexID            `json:"id" doc:"Of the template."`
	Count    int              `json:"count"`
	Members  []TemplateMember `json:"members"`
	Writable bool             `json:"writable" doc:"The caller is a member that holds WRITE, and may change the list."`
	Digest   string           `json:"digest" doc:"The membersDigest of GET /api/acl-templates, by which whoever has the members knows that they are still the same."`
}

// TemplateMemberSaved is the verdict on setting a member.
type TemplateMemberSaved struct {
	ID                  HexID            `json:"id" doc:"Of the template."`
	RequestedRights     Rights           `json:"requestedRights" doc:"The rights that were sent."`
	RequestedRightNames []string         `json:"requestedRightNames" enum:"OWNER,READ,WRITE,MANDATORY_GROUP,HOST_MATRIX" doc:"The bits of requestedRights that are set, by name."`
	Saved               bool             `json:"saved" doc:"Rights and limits read back, the rights by mask."`
	Missing             bool             `json:"missing,omitzero" doc:"The fresh read has no such member."`
	Member              *TemplateMember  `json:"member" doc:"As read back; null when missing."`
	Members             []TemplateMember `json:"members" doc:"All of them, as read back."`
	Verdict
}

// Unproven returns "" if the member reads back.
func (r TemplateMemberSaved) Unproven() string {
	return unshown(r.Saved && r.Member != nil, "the member")
}

// Unlike returns "" if the member reads back as requested.
func (r SetACLTemplateMemberRequest) Unlike(answer TemplateMemberSaved) string {
	got := answer.Member
	return otherwise(answer.ID == r.ID && got.SystemID == r.SystemID && got.PrincipalID == r.PrincipalID && got.Rights&r.Rights == r.Rights, "the member")
}

// TemplateMemberGone is the verdict on removing a member.
type TemplateMemberGone struct {
	ID          HexID            `json:"id" doc:"Of the template."`
	SystemID    SystemID         `json:"systemId"`
	PrincipalID DecimalID        `json:"principalId"`
	Gone        bool             `json:"gone" doc:"A fresh read no longer has the member."`
	Members     []TemplateMember `json:"members" doc:"Those left, as read back."`
	Verdict
}

// Unproven returns "" if the member is gone.
func (r TemplateMemberGone) Unproven() string { return ungone(r.Gone, "the member") }

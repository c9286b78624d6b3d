package keyserver

import (
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
)

// Limits of ACL templates. The list of templates and the list of members are read completely.
const (
	MaxACLTemplates    = 1024
	MaxTemplateMembers = 256
)

// ACLTemplate is a named list of members. They become ACL entries of each key that is created under a directory with
// the template.
type ACLTemplate struct {
	ID          ID
	Name        string
	MemberCount int
	// Writable reports whether the caller that reads the template is a member with WRITE.
	// Only such a member may change it.
	Writable bool
	// Members is set if a single template is read, sorted by principal.
	Members []TemplateMember
	// MembersDigest is equal in two results if their members are equal. It has no other meaning. It is set if a single
	// template is read, or if ACLTemplateQuery.Digests is set.
	MembersDigest []byte
}

// ACLTemplateQuery selects the contents of a list of templates.
type ACLTemplateQuery struct {
	Digests bool // set MembersDigest of each template; the key server must read all members for this
}

// TemplateMember has the rights of one principal in a template. MaxUsage, Start and End also apply to the ACL entry on
// each key. Start and End also limit the membership itself.
type TemplateMember struct {
	Principal PrincipalRef
	Rights    Rights
	MaxUsage  int64 // NoUsageLimit, or the number of uses that an ACL entry allows
	Start     Stamp
	End       Stamp
}

// ACLTemplateChange renames a template.
type ACLTemplateChange struct {
	ID   ID
	Name string
}

// TemplateMembership makes a principal a member of a template.
type TemplateMembership struct {
	Template ID
	Member   TemplateMember
}

// TemplateMemberRef names one member of a template.
type TemplateMemberRef struct {
	Template  ID
	Principal PrincipalRef
}

// Member returns the membership of one principal, or false if there is none.
func (t ACLTemplate) Member(p PrincipalRef) (TemplateMember, bool) {
	for _, m := range t.Members {
		if m.Principal == p {
			return m, true
		}
	}
	return TemplateMember{}, false
}

// With returns a copy of the members with m, which replaces the member with the same principal.
func (t ACLTemplate) With(m TemplateMember) []TemplateMember {
	return append(t.Without(m.Principal), m)
}

// Without returns a copy of the members without the given principal.
func (t ACLTemplate) Without(p PrincipalRef) []TemplateMember {
	members := make([]TemplateMember, 0, len(t.Members)+1)
	for _, m := range t.Members {
		if m.Principal != p {
			members = append(members, m)
		}
	}
	return members
}

// Writes reports whether the membership permits changes to the template at the time now. The usage limit applies only
// to keys and is ignored.
func (m TemplateMember) Writes(now time.Time) bool {
	at := values.StampOf(now).Millis()
	return m.Rights.Widen().Has(Write) && (m.Start.IsUnset() || at >= m.Start.Millis()) && (m.End.IsUnset() || at < m.End.Millis())
}

// KeepsWriter reports whether a member has WRITE without an end time. A template without such a member becomes
// unchangeable when the last WRITE ends.
func KeepsWriter(members []TemplateMember) bool {
	for _, m := range members {
		if m.Rights.Widen().Has(Write) && m.End.IsUnset() {
			return true
		}
	}
	return false
}

// EntriesOf returns the first ACL entries of a key that creator creates under a template. The caller sets their ids.
// The entry of creator comes first: OWNER without limits, plus the rights that the template gives to creator.
func EntriesOf(creator PrincipalRef, members []TemplateMember) []ACLEntry {
	entries := []ACLEntry{{Principal: creator, Rights: Owner.Widen(), MaxUsage: NoUsageLimit}}
	for _, m := range members {
		if m.Principal == creator {
			entries[0].Rights |= m.Rights.Widen()
			continue
		}
		entries = append(entries, ACLEntry{
			Principal: m.Principal, Rights: m.Rights.Widen(), MaxUsage: m.MaxUsage, Start: m.Start, End: m.End,
		})
	}
	return entries
}

package keyserver

import "time"

// Bounds of ACL templates. The list of templates, and the members of each, are
// read as a whole.
const (
	MaxACLTemplates    = 1024
	MaxTemplateMembers = 256
)

// ACLTemplate is a named list of members that become entries on the access
// control list of each key minted where the template applies.
type ACLTemplate struct {
	ID          ID
	Name        string
	MemberCount int
	// Writable says that the caller who reads the template is a write-holding
	// member of it, which is who may change it.
	Writable bool
	// Members is filled where one template is read, sorted by principal.
	Members []TemplateMember
	// MembersDigest is the same for two readings that find the same members, and says
	// nothing else about them. It is filled where one template is read, and in a list
	// that was asked for it.
	MembersDigest []byte
}

// ACLTemplateQuery says what a list of templates has of each.
type ACLTemplateQuery struct {
	Digests bool // of the members, for whom every membership has to be read
}

// TemplateMember is one principal's rights in a template. The limits are those
// of the entry that a key gets; the time window also bounds the membership.
type TemplateMember struct {
	Principal PrincipalRef
	Rights    Rights
	MaxUsage  int64 // NoUsageLimit, or how many grants an entry is good for
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

// Member returns the membership of one principal.
func (t ACLTemplate) Member(p PrincipalRef) (TemplateMember, bool) {
	for _, m := range t.Members {
		if m.Principal == p {
			return m, true
		}
	}
	return TemplateMember{}, false
}

// With returns the members with m added, or put in place of the one it has the
// principal of.
func (t ACLTemplate) With(m TemplateMember) []TemplateMember {
	return append(t.Without(m.Principal), m)
}

// Without returns the members but for one principal.
func (t ACLTemplate) Without(p PrincipalRef) []TemplateMember {
	members := make([]TemplateMember, 0, len(t.Members)+1)
	for _, m := range t.Members {
		if m.Principal != p {
			members = append(members, m)
		}
	}
	return members
}

// Writes reports whether the membership lets its principal change the template
// at a point in time. A usage limit is about keys and does not matter here.
func (m TemplateMember) Writes(now time.Time) bool {
	at := StampOf(now).Millis()
	return m.Rights.Widen().Has(Write) && (m.Start.IsUnset() || at >= m.Start.Millis()) && (m.End.IsUnset() || at < m.End.Millis())
}

// KeepsWriter reports whether some member holds WRITE without an end. A
// template without one would sooner or later be closed to everybody.
func KeepsWriter(members []TemplateMember) bool {
	for _, m := range members {
		if m.Rights.Widen().Has(Write) && m.End.IsUnset() {
			return true
		}
	}
	return false
}

// EntriesOf returns the entries that a key minted by creator under a template
// starts with; their ids are left to the caller. The creator comes first and
// holds OWNER without limits, together with whatever rights the template gives
// him.
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

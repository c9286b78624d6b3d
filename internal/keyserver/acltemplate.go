package keyserver

import (
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
)

// Bounds of ACL templates. The list of templates and the members of each are read
// completely.
const (
	MaxACLTemplates    = 1024
	MaxTemplateMembers = 256
)

// ACLTemplate is a named list of members. They become ACL entries of each key that is
// minted under a directory with the template.
type ACLTemplate struct {
	ID          ID
	Name        string
	MemberCount int
	// Writable reports whether the caller that reads the template is a member with WRITE.
	// Only such a member may change it.
	Writable bool
	// Members is set if a single template is read, sorted by principal.
	Members []TemplateMember
	// MembersDigest is equal for two reads with equal members, and has no other meaning.
	// It is set if a single template is read, and in a list that requested it.
	MembersDigest []byte
}

// ACLTemplateQuery selects the contents of a list of templates.
type ACLTemplateQuery struct {
	Digests bool // of the members; every membership has to be read for them
}

// TemplateMember is one principal's rights in a template. The limits become those of the
// key's ACL entry; the time window also limits the membership.
type TemplateMember struct {
	Principal PrincipalRef
	Rights    Rights
	MaxUsage  int64 // NoUsageLimit, or the number of grants that an entry allows
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

// With returns the members with m added. It replaces the member with the same principal.
func (t ACLTemplate) With(m TemplateMember) []TemplateMember {
	return append(t.Without(m.Principal), m)
}

// Without returns the members except one principal.
func (t ACLTemplate) Without(p PrincipalRef) []TemplateMember {
	members := make([]TemplateMember, 0, len(t.Members)+1)
	for _, m := range t.Members {
		if m.Principal != p {
			members = append(members, m)
		}
	}
	return members
}

// Writes reports whether the membership permits changes to the template at a time. The
// usage limit applies only to keys and is ignored.
func (m TemplateMember) Writes(now time.Time) bool {
	at := values.StampOf(now).Millis()
	return m.Rights.Widen().Has(Write) && (m.Start.IsUnset() || at >= m.Start.Millis()) && (m.End.IsUnset() || at < m.End.Millis())
}

// KeepsWriter reports whether a member has WRITE without an end time. Without one, no
// principal could change the template sooner or later.
func KeepsWriter(members []TemplateMember) bool {
	for _, m := range members {
		if m.Rights.Widen().Has(Write) && m.End.IsUnset() {
			return true
		}
	}
	return false
}

// EntriesOf returns the first ACL entries of a key that creator mints under a template.
// The caller sets their ids. The creator comes first and has OWNER without limits, plus
// the rights that the template gives it.
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

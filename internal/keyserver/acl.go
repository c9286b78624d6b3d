package keyserver

// NoUsageLimit is the MaxUsage of an entry that may be used any number of times.
const NoUsageLimit int64 = -1

// ACLEntry is one principal's rights over one key, as the key server holds them.
type ACLEntry struct {
	ID        ID
	ACL       ID
	Principal PrincipalRef
	Rights    Rights
	MaxUsage  int64 // NoUsageLimit, or how many grants the entry is good for
	Used      int64 // grants so far; counted only where MaxUsage is a limit
	UserRight int64
	Start     Stamp
	End       Stamp
}

// ACL is the access control list of one key.
type ACL struct {
	ID      ID
	Link    HiddenLink
	Expired bool // the time of at least one entry has ended
	Entries []ACLEntry
}

// Entry returns the entry of one principal.
func (a ACL) Entry(p PrincipalRef) (ACLEntry, bool) {
	for _, e := range a.Entries {
		if e.Principal == p {
			return e, true
		}
	}
	return ACLEntry{}, false
}

// ACLChange is what a grant or an amendment asks for.
type ACLChange struct {
	Link      HiddenLink
	Principal PrincipalRef
	Rights    Rights
	MaxUsage  int64
	Start     Stamp
	End       Stamp
}

// ACLRevocation asks for the end of a principal's entry.
type ACLRevocation struct {
	Link      HiddenLink
	Principal PrincipalRef
}

package keyserver

// NoUsageLimit is the MaxUsage of an entry that may be used any number of times.
const NoUsageLimit int64 = -1

// ACLEntry has the rights of one principal on one key, as the key server stores them.
type ACLEntry struct {
	ID        ID
	ACL       ID
	Principal PrincipalRef
	Rights    Rights
	MaxUsage  int64 // NoUsageLimit, or the number of uses that the entry allows
	Used      int64 // uses so far; counted only if MaxUsage is a limit
	UserRight int64
	Start     Stamp
	End       Stamp
}

// ACL is the access control list of one key.
type ACL struct {
	ID      ID
	Link    HiddenLink
	Expired bool // the time window of at least one entry has ended
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

// ACLChange is a request to grant or amend an entry.
type ACLChange struct {
	Link      HiddenLink
	Principal PrincipalRef
	Rights    Rights
	MaxUsage  int64
	Start     Stamp
	End       Stamp
}

// ACLRevocation is a request to remove a principal's entry.
type ACLRevocation struct {
	Link      HiddenLink
	Principal PrincipalRef
}

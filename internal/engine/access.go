package engine

import (
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// subject is a principal as an access control list sees it.
type subject struct {
	principal keyserver.PrincipalRef
	groups    []keyserver.PrincipalRef // enabled groups it is a member of
}

func (s subject) is(p keyserver.PrincipalRef) bool {
	return s.principal == p || slices.Contains(s.groups, p)
}

// access is the verdict of a key's access control list.
type access struct {
	allowed bool
	// limited lists, when the grant rests on entries with a usage limit alone,
	// those to count one use of, in order; one of them must take the use.
	limited []keyserver.ACLEntry
	// spent: the one thing that keeps an entry from allowing it is that its uses
	// are used up.
	spent bool
	why   string // for the detail of a refusal
}

// evaluate decides whether a subject holds want on a key at a point in time.
// It is pure. Rules (contract 3.3 to 3.5): a group's entry counts for its
// members; an entry outside its time window or with its uses spent is checked
// out and gives nothing; an entry that marks a group as mandatory, or as a
// host matrix, shuts out everybody who is not in that group. Such a demand
// stays in force when the entry itself is checked out: a restriction must not
// lapse by itself.
func evaluate(acl keyserver.ACL, who subject, want keyserver.Rights, now time.Time) access {
	for _, e := range acl.Entries {
		if e.Rights&(keyserver.MandatoryGroup|keyserver.HostMatrix) != 0 && !who.is(e.Principal) {
			return access{why: "the list demands membership of a group that the caller is not in"}
		}
	}
	verdict := access{why: "the list has no entry that gives the caller this right"}
	for _, e := range acl.Entries {
		if !who.is(e.Principal) || !e.Rights.Widen().Has(want) {
			continue
		}
		switch {
		case !inWindow(e, now):
			verdict.why = "the caller's entry is outside its time window"
		case e.MaxUsage == keyserver.NoUsageLimit:
			return access{allowed: true}
		case e.Used >= e.MaxUsage:
			verdict.spent, verdict.why = true, "the caller's entry has no uses left"
		default:
			verdict.limited = append(verdict.limited, e)
		}
	}
	verdict.allowed = len(verdict.limited) > 0
	return verdict
}

// inWindow reports whether now lies in [start, end), unset bounds being open.
func inWindow(e keyserver.ACLEntry, now time.Time) bool {
	at := keyserver.StampOf(now).Millis()
	if !e.Start.IsUnset() && at < e.Start.Millis() {
		return false
	}
	return e.End.IsUnset() || at < e.End.Millis()
}

// expired reports whether the time of an entry has ended. It is not the time of
// every entry: such a list is shown to nobody, so nobody would ever be told.
// An entry that has yet to begin, or has no uses left, has not ended.
func expired(acl keyserver.ACL, now time.Time) bool {
	at := keyserver.StampOf(now).Millis()
	return slices.ContainsFunc(acl.Entries, func(e keyserver.ACLEntry) bool {
		return !e.End.IsUnset() && e.End.Millis() <= at
	})
}

// owns reports whether the subject holds OWNER by an entry that is in force.
// Usage limits are about using the key, not about its list.
func owns(acl keyserver.ACL, who subject, now time.Time) bool {
	return slices.ContainsFunc(acl.Entries, func(e keyserver.ACLEntry) bool {
		return who.is(e.Principal) && e.Rights.Has(keyserver.Owner) && inWindow(e, now)
	})
}

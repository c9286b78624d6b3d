// Package access has the rules by which a key server decides whom it lets, as pure
// functions: what an access control list gives, and whom a peer may be told of. It
// fetches nothing; the gate of package engine does, and asks here.
package access

import (
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Subject is a principal as an access control list sees it.
type Subject struct {
	Principal keyserver.PrincipalRef
	Groups    []keyserver.PrincipalRef // enabled groups it is a member of
}

// Is reports whether the subject is the principal, or is in the group.
func (s Subject) Is(p keyserver.PrincipalRef) bool {
	return s.Principal == p || slices.Contains(s.Groups, p)
}

// Verdict is what a rule says: of a key's access control list, or of what principals and
// peers may learn of each other.
type Verdict struct {
	Allowed bool
	// Limited lists, when the grant rests on entries with a usage limit alone,
	// those to count one use of, in order; one of them must take the use.
	Limited []keyserver.ACLEntry
	// Spent: the one thing that keeps an entry from allowing it is that its uses
	// are used up.
	Spent bool
	Why   string // for the detail of a refusal
	// By is the entry that it rests on: that lets, or that keeps out; zero where there is
	// none. Demanded: it is one that demands membership.
	By       keyserver.ACLEntry
	Demanded bool
}

// Evaluate decides whether a subject holds want on a key at a point in time.
// It is pure. Rules (contract 3.3 to 3.5): a group's entry counts for its
// members; an entry outside its time window or with its uses spent is checked
// out and gives nothing; an entry that marks a group as mandatory, or as a
// host matrix, shuts out everybody who is not in that group. Such a demand
// stays in force when the entry itself is checked out: a restriction must not
// lapse by itself.
func Evaluate(acl keyserver.ACL, who Subject, want keyserver.Rights, now time.Time) Verdict {
	for _, e := range acl.Entries {
		if e.Rights&(keyserver.MandatoryGroup|keyserver.HostMatrix) != 0 && !who.Is(e.Principal) {
			return Verdict{Why: "the list demands membership of a group that the caller is not in", By: e, Demanded: true}
		}
	}
	verdict := Verdict{Why: "the list has no entry that gives the caller this right"}
	for _, e := range acl.Entries {
		if !who.Is(e.Principal) || !e.Rights.Widen().Has(want) {
			continue
		}
		switch {
		case !inWindow(e, now):
			verdict.Why, verdict.By = "the caller's entry is outside its time window", e
		case e.MaxUsage == keyserver.NoUsageLimit:
			return Verdict{Allowed: true, By: e}
		case e.Used >= e.MaxUsage:
			verdict.Spent, verdict.Why, verdict.By = true, "the caller's entry has no uses left", e
		default:
			verdict.Limited = append(verdict.Limited, e)
		}
	}
	if verdict.Allowed = len(verdict.Limited) > 0; verdict.Allowed {
		verdict.By = verdict.Limited[0]
	}
	return verdict
}

// MayShare reports whether the giver may let others use the entries of a group on a list, as
// whoever adds a member to the group does. It is pure. Rules (contract 4.9): an owner of the
// key may. Anybody else may share only what an entry of its own gives it now, for as long,
// and without a usage limit unless it is the same entry. It cannot lift a demand that it
// does not meet.
func MayShare(acl keyserver.ACL, giver Subject, group keyserver.PrincipalRef, now time.Time) bool {
	if Owns(acl, giver, now) {
		return true
	}
	const demands = keyserver.MandatoryGroup | keyserver.HostMatrix
	given := slices.DeleteFunc(slices.Clone(acl.Entries), func(e keyserver.ACLEntry) bool { return e.Principal != group || !gives(e, now) })
	if len(given) == 0 {
		return true
	}
	if slices.ContainsFunc(acl.Entries, func(e keyserver.ACLEntry) bool { return e.Rights&demands != 0 && !giver.Is(e.Principal) }) {
		return false
	}
	return !slices.ContainsFunc(given, func(e keyserver.ACLEntry) bool {
		return !slices.ContainsFunc(acl.Entries, func(own keyserver.ACLEntry) bool {
			return giver.Is(own.Principal) && inWindow(own, now) && own.Rights.Widen().Has(e.Rights.Widen()&^demands) &&
				(own.ID == e.ID || own.MaxUsage == keyserver.NoUsageLimit) &&
				(own.End.IsUnset() || !e.End.IsUnset() && e.End.Millis() <= own.End.Millis())
		})
	})
}

// gives reports whether an entry gives its principal something, now or later: a right, or
// what the list demands.
func gives(e keyserver.ACLEntry, now time.Time) bool {
	switch {
	case e.Rights&(keyserver.MandatoryGroup|keyserver.HostMatrix) != 0: // which no time and no limit ends
		return true
	case !e.End.IsUnset() && keyserver.StampOf(now).Millis() >= e.End.Millis():
		return false
	default:
		return e.Rights.Has(keyserver.Owner) || e.MaxUsage == keyserver.NoUsageLimit || e.Used < e.MaxUsage
	}
}

// renewed is how long an entry is let again whose window is over and had no beginning.
const renewed = 24 * time.Hour

// Amended is the entry by which a principal would have a right now, nil being no entry: the
// right is added, a window that is over is let for as long as it was, one that is to come
// begins, and a limit that is used up is left out, unless an owner may what is asked, whose uses
// do not count (Owns). All else stays.
func Amended(entry *keyserver.ACLEntry, right keyserver.Rights, ownerMay bool, now time.Time) keyserver.ACLEntry {
	if entry == nil {
		return keyserver.ACLEntry{Rights: right, MaxUsage: keyserver.NoUsageLimit}
	}
	is := *entry
	is.Rights |= right
	at := keyserver.StampOf(now).Millis()
	if !is.End.IsUnset() && at >= is.End.Millis() {
		lasted := renewed
		if ms := is.End.Millis() - is.Start.Millis(); !is.Start.IsUnset() && ms > 0 && ms < 1<<52 { // it ends behind its beginning
			lasted = time.Duration(ms) * time.Millisecond
		}
		is.End = keyserver.StampOf(now.Add(lasted))
	}
	if !is.Start.IsUnset() && at < is.Start.Millis() {
		is.Start = keyserver.Stamp{}
	}
	if byOwning := ownerMay && is.Rights.Has(keyserver.Owner); !byOwning && is.Used >= is.MaxUsage {
		is.MaxUsage = keyserver.NoUsageLimit
	}
	return is
}

// inWindow reports whether now lies in [start, end), unset bounds being open.
func inWindow(e keyserver.ACLEntry, now time.Time) bool {
	at := keyserver.StampOf(now).Millis()
	if !e.Start.IsUnset() && at < e.Start.Millis() {
		return false
	}
	return e.End.IsUnset() || at < e.End.Millis()
}

// Expired reports whether the time of an entry has ended. It is not the time of
// every entry: such a list is shown to nobody, so nobody would ever be told.
// An entry that has yet to begin, or has no uses left, has not ended.
func Expired(acl keyserver.ACL, now time.Time) bool {
	at := keyserver.StampOf(now).Millis()
	return slices.ContainsFunc(acl.Entries, func(e keyserver.ACLEntry) bool {
		return !e.End.IsUnset() && e.End.Millis() <= at
	})
}

// Owns reports whether the subject holds OWNER by an entry that is in force.
// Usage limits are about using the key, not about its list.
func Owns(acl keyserver.ACL, who Subject, now time.Time) bool {
	return slices.ContainsFunc(acl.Entries, func(e keyserver.ACLEntry) bool {
		return who.Is(e.Principal) && e.Rights.Has(keyserver.Owner) && inWindow(e, now)
	})
}

// Package access has the authorization rules of a key server as pure functions: which rights an access control list
// (ACL) grants, and what a peer may learn about principals. The package reads no data. The gate of package engine reads
// the data and calls these functions.
package access

import (
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Subject is the principal for which a rule is evaluated, with its groups.
type Subject struct {
	Principal keyserver.PrincipalRef
	Groups    []keyserver.PrincipalRef // enabled groups that the principal is a member of
}

// Is reports whether p is the principal of the subject or one of its groups.
func (s Subject) Is(p keyserver.PrincipalRef) bool {
	return s.Principal == p || slices.Contains(s.Groups, p)
}

// Verdict is the decision of a rule about an ACL, or about which principals a peer may know.
type Verdict struct {
	Allowed bool
	// Limited lists, in order, the ACL entries that allow the request and have a usage limit, if only such entries
	// allow it. The caller must count the use on one of them.
	Limited []keyserver.ACLEntry
	// Spent reports that an ACL entry would allow the request, but has no uses left.
	Spent bool
	Why   string // detail of a refusal
	// By is the entry that allows or denies the request, zero if there is none. Demanded reports that By denies the
	// request because the subject is not in the group of By.
	By       keyserver.ACLEntry
	Demanded bool
}

// Evaluate decides whether the ACL of a key grants the subject who the rights want at the time now. It has no side
// effects. Rules (contract 3.3 to 3.5): an entry of a group also applies to its members. An entry outside its time
// window, or without uses left, grants nothing. An entry with MANDATORY_GROUP or HOST_MATRIX denies every subject that
// is not in the entry's group. It denies even outside its time window and without uses left, because a restriction must
// not end by itself.
func Evaluate(acl keyserver.ACL, who Subject, want keyserver.Rights, now time.Time) Verdict {
	for _, e := range acl.Entries {
		if e.Rights&(keyserver.MandatoryGroup|keyserver.HostMatrix) != 0 && !who.Is(e.Principal) {
			return Verdict{Why: "the ACL requires membership in a group that the caller is not in", By: e, Demanded: true}
		}
	}
	verdict := Verdict{Why: "no ACL entry grants the caller this right"}
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

// MayShare reports whether the giver may let others use the ACL entries of a group, as adding a member does. It has no
// side effects. Rules (contract 4.9): an owner of the key may share all entries. Any other giver may share only rights
// that its own entry grants now, for at most the same time. Its own entry must have no usage limit, unless it is the
// shared entry. A giver that an entry with MANDATORY_GROUP or HOST_MATRIX denies may share nothing.
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

// gives reports whether an entry grants a right now or later, or has MANDATORY_GROUP or HOST_MATRIX.
func gives(e keyserver.ACLEntry, now time.Time) bool {
	switch {
	case e.Rights&(keyserver.MandatoryGroup|keyserver.HostMatrix) != 0: // also applies outside the time window and without uses left
		return true
	case !e.End.IsUnset() && values.StampOf(now).Millis() >= e.End.Millis():
		return false
	default:
		return e.Rights.Has(keyserver.Owner) || e.MaxUsage == keyserver.NoUsageLimit || e.Used < e.MaxUsage
	}
}

// defaultExtension is the new remaining time of an expired entry that has no start time.
const defaultExtension = 24 * time.Hour

// Amended returns a copy of an entry, changed so that it grants a right now; nil means no entry yet. An expired time
// window is extended by its former length. A future one starts now. A used-up usage limit is removed, unless ownerMay
// is set and the entry has OWNER: usage limits do not apply then (see Owns). Nothing else changes.
func Amended(entry *keyserver.ACLEntry, right keyserver.Rights, ownerMay bool, now time.Time) keyserver.ACLEntry {
	if entry == nil {
		return keyserver.ACLEntry{Rights: right, MaxUsage: keyserver.NoUsageLimit}
	}
	is := *entry
	is.Rights |= right
	at := values.StampOf(now).Millis()
	if !is.End.IsUnset() && at >= is.End.Millis() {
		lasted := defaultExtension
		if ms := is.End.Millis() - is.Start.Millis(); !is.Start.IsUnset() && ms > 0 && ms < 1<<52 { // the end must be after the start
			lasted = time.Duration(ms) * time.Millisecond
		}
		is.End = values.StampOf(now.Add(lasted))
	}
	if !is.Start.IsUnset() && at < is.Start.Millis() {
		is.Start = keyserver.Stamp{}
	}
	if byOwning := ownerMay && is.Rights.Has(keyserver.Owner); !byOwning && is.Used >= is.MaxUsage {
		is.MaxUsage = keyserver.NoUsageLimit
	}
	return is
}

// inWindow reports whether now is in [start, end). An unset bound is open.
func inWindow(e keyserver.ACLEntry, now time.Time) bool {
	at := values.StampOf(now).Millis()
	if !e.Start.IsUnset() && at < e.Start.Millis() {
		return false
	}
	return e.End.IsUnset() || at < e.End.Millis()
}

// Expired reports whether the time window of at least one entry has ended. It does not wait until all windows have
// ended, because no principal could read the ACL then. Future windows and used-up limits do not count.
func Expired(acl keyserver.ACL, now time.Time) bool {
	at := values.StampOf(now).Millis()
	return slices.ContainsFunc(acl.Entries, func(e keyserver.ACLEntry) bool {
		return !e.End.IsUnset() && e.End.Millis() <= at
	})
}

// Owns reports whether an entry in its time window grants OWNER to the subject. Usage limits do not matter: they
// concern the use of the key, not its ACL.
func Owns(acl keyserver.ACL, who Subject, now time.Time) bool {
	return slices.ContainsFunc(acl.Entries, func(e keyserver.ACLEntry) bool {
		return who.Is(e.Principal) && e.Rights.Has(keyserver.Owner) && inWindow(e, now)
	})
}

package keyserver

import "slices"

// Conflict is a pair of operations that one principal is not to hold where
// duties are apart.
type Conflict struct{ One, Other Operation }

// together are the pairs of operations of different duties that some built-in
// role of a split deployment holds: reading, for the most part, which every
// duty takes. They are the measure of what goes together.
var together = func() map[[2]ID]bool {
	pairs := map[[2]ID]bool{}
	for _, role := range BuiltInRoles(Split) {
		for _, a := range role.Operations {
			for _, b := range role.Operations {
				pairs[[2]ID{a.ID, b.ID}] = true
			}
		}
	}
	return pairs
}()

// apart reports whether an operation belongs to one of the duties that are kept
// apart. Keys may be used beside any of them.
func (op Operation) apart() bool {
	return op.Duty == Administration || op.Duty == Trust || op.Duty == Auditing
}

// ConflictOf answers the first pair of operations that a principal has come to
// hold and is not to hold together (contract 4.10): of two duties among
// administration, trust and audit, and in no built-in role together. A pair
// that it held before is not answered. The pair answered is the first by ids.
func ConflictOf(before, after []ID) (Conflict, bool) {
	had := map[ID]bool{}
	for _, id := range before {
		had[id] = true
	}
	for _, id := range NormalizeIDs(after) {
		a := OperationOf(id)
		if had[id] || !a.apart() {
			continue
		}
		for _, other := range NormalizeIDs(after) {
			b := OperationOf(other)
			if b.apart() && a.Duty != b.Duty && !together[[2]ID{a.ID, b.ID}] {
				return Conflict{a, b}, true
			}
		}
	}
	return Conflict{}, false
}

// besideKeys are the operations of other duties that come with the use of keys:
// those of the built-in roles that use any.
var besideKeys = func() map[ID]bool {
	beside := map[ID]bool{}
	for _, role := range BuiltInRoles(Split) {
		if role.ID == RoleEncryptor || role.ID == RoleExchanger {
			for _, op := range role.Operations {
				beside[op.ID] = true
			}
		}
	}
	return beside
}()

// GivesDuty reports whether whoever is given the operation has a part in one of
// the duties that are kept apart (contract 4.12).
func (op Operation) GivesDuty() bool { return op.apart() && !besideKeys[op.ID] }

// AnyDuty stands for any of the duties that are kept apart.
const AnyDuty Duty = "any"

// ApprovingDuties are the duties that a rule of the approval policy may ask of
// those who approve.
var ApprovingDuties = []Duty{Administration, Trust, Auditing, AnyDuty}

// shared are the operations that more than one built-in role of a split
// deployment holds. They say nothing about the duty of who holds them.
var shared = func() map[ID]bool {
	times := map[ID]int{}
	for _, role := range BuiltInRoles(Split) {
		for _, id := range role.Role().Operations {
			times[id]++
		}
	}
	several := map[ID]bool{}
	for id, n := range times {
		several[id] = n > 1
	}
	return several
}()

// HoldsDuty reports whether whoever holds some operations has a duty
// (contract 4.12). Administration and trust has who holds an operation of it that
// no two built-in roles share; audit, who reads the trail and has neither.
func HoldsDuty(operations []ID, d Duty) bool {
	has := func(d Duty) bool {
		return slices.ContainsFunc(operations, func(id ID) bool { return OperationOf(id).Duty == d && !shared[id] })
	}
	administers, trusts := has(Administration), has(Trust)
	audits := slices.Contains(operations, OpReadAudit.ID) && !administers && !trusts
	switch d {
	case Administration:
		return administers
	case Trust:
		return trusts
	case Auditing:
		return audits
	case AnyDuty:
		return administers || trusts || audits
	default:
		return false
	}
}

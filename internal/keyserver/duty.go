package keyserver

import "slices"

// Conflict is a pair of operations that one principal must not hold if duties are
// separated.
type Conflict struct{ One, Other Operation }

// compatiblePairs has each pair of operations that one built-in role of a split deployment contains. These pairs are no
// conflict, even if their duties differ: most are reads, which every duty needs.
var compatiblePairs = func() map[[2]ID]bool {
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

// hasSeparatedDuty reports whether the duty of the operation is separated from others. Key use is not: it is compatible
// with each duty.
func (op Operation) hasSeparatedDuty() bool {
	return op.Duty == Administration || op.Duty == Trust || op.Duty == Auditing
}

// ConflictOf returns the first pair, by ids, of operations in after that one principal must not hold together (contract
// 4.10). The two belong to different duties among administration, trust and audit, and no built-in role contains both.
// A pair that is already in before is not returned.
func ConflictOf(before, after []ID) (Conflict, bool) {
	had := map[ID]bool{}
	for _, id := range before {
		had[id] = true
	}
	for _, id := range NormalizeIDs(after) {
		a := OperationOf(id)
		if had[id] || !a.hasSeparatedDuty() {
			continue
		}
		for _, other := range NormalizeIDs(after) {
			b := OperationOf(other)
			if b.hasSeparatedDuty() && a.Duty != b.Duty && !compatiblePairs[[2]ID{a.ID, b.ID}] {
				return Conflict{a, b}, true
			}
		}
	}
	return Conflict{}, false
}

// keyUseOperations has the operations of the built-in roles for key use. They give their holder no separated duty, even if
// they belong to one.
var keyUseOperations = func() map[ID]bool {
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

// GivesDuty reports whether the operation gives its holder a part of a separated duty
// (contract 4.12).
func (op Operation) GivesDuty() bool { return op.hasSeparatedDuty() && !keyUseOperations[op.ID] }

// AnyDuty stands for any of the separated duties.
const AnyDuty Duty = "any"

// ApprovingDuties are the duties that a rule of the approval policy can require of
// approvers.
var ApprovingDuties = []Duty{Administration, Trust, Auditing, AnyDuty}

// shared are the operations that more than one built-in role of a split deployment
// contains. They do not determine the duty of their holder.
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

// HoldsDuty reports whether a holder of the operations has a duty (contract 4.12). It has administration or trust if
// one of its operations belongs to that duty and is not shared. It has audit if it may read the audit log and has
// neither of these two duties.
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

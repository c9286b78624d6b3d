package keyserver

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

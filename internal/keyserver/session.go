package keyserver

// Guarded is an operation that is done outside of the key server proper, behind
// its gate.
type Guarded struct {
	Operation Operation
	Object    string // what the audit row names
	// Own: it is about nothing but the caller's own, for which no role is needed.
	Own bool
}

package keyserver

import "slices"

// ScopedOperations are what a scoped credential may do that names no operations:
// to use its keys, and to look at them.
var ScopedOperations = []Operation{OpHMAC, OpAuthorizeKey, OpReadKey, OpReadACL}

// OfferedOperations are what one may name: those, MACs and encryption by line or
// key, and changing lists within the rights that it may give. Export and further
// sessions are not to be had.
var OfferedOperations = append(slices.Clip(ScopedOperations), OpMACData, OpVerifyMAC, OpEncrypt, OpDecrypt, OpAmendACL)

// CoversOperation reports whether a caller's credential is good for an
// operation. It is, where the caller has no scoped one.
func (c Caller) CoversOperation(op Operation) bool {
	if c.Scope == nil {
		return true
	}
	named := slices.Contains(c.CredentialOperations(), op.ID)
	return named && slices.ContainsFunc(OfferedOperations, func(o Operation) bool { return o.ID == op.ID })
}

// CredentialOperations are what a scoped credential names. One that was made
// when there was no choice names what is there without one.
func (c Caller) CredentialOperations() []ID {
	if c.ScopeOperations != nil {
		return c.ScopeOperations
	}
	ids := make([]ID, len(ScopedOperations))
	for i, op := range ScopedOperations {
		ids[i] = op.ID
	}
	return ids
}

// CoversGrant reports whether a caller's credential is good for a change of an
// entry from some rights to others. OWNER is in no credential, and so neither
// is an owner's entry.
func (c Caller) CoversGrant(from, to Rights) bool {
	may := c.MayGrant.Widen() &^ Owner
	return c.Scope == nil || may.Has(from.Widen()|to.Widen())
}

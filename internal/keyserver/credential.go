package keyserver

import "slices"

// ScopedOperations are the operations of a scoped credential that names no operations: using its keys and reading their
// metadata and ACL.
var ScopedOperations = []Operation{OpHMAC, OpAuthorizeKey, OpReadKey, OpReadACL}

// OfferedOperations are the operations that a scoped credential may name: ScopedOperations, MACs and encryption by key
// or lineage, and ACL changes within the rights that the credential may grant. Key export and new sessions are
// excluded.
var OfferedOperations = append(slices.Clip(ScopedOperations), OpMACData, OpVerifyMAC, OpEncrypt, OpDecrypt, OpAmendACL)

// CoversOperation reports whether a caller's credential allows an operation. An unscoped
// caller has no limit.
func (c Caller) CoversOperation(op Operation) bool {
	if c.Scope == nil {
		return true
	}
	named := slices.Contains(c.CredentialOperations(), op.ID)
	return named && slices.ContainsFunc(OfferedOperations, func(o Operation) bool { return o.ID == op.ID })
}

// CredentialOperations returns the operations that a scoped credential names. A credential of an earlier release, which
// could not name operations, has ScopedOperations.
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

// CoversGrant reports whether a caller's credential allows changing an entry's rights
// from one set to another. No credential covers OWNER, so none may change an owner's
// entry.
func (c Caller) CoversGrant(from, to Rights) bool {
	may := c.MayGrant.Widen() &^ Owner
	return c.Scope == nil || may.Has(from.Widen()|to.Widen())
}

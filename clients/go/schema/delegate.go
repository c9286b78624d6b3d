package schema

// DelegateRequest names a principal that may act with the rights of another one.
type DelegateRequest struct {
	ID       HexID `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	Delegate HexID `path:"pid" json:"-" names:"principal" doc:"Id of the principal, 16 hexadecimal digits."`
}

// DelegateSaved is the result of adding a delegate.
type DelegateSaved struct {
	DelegateID HexID     `json:"delegateId" doc:"Id of the delegate."`
	Saved      bool      `json:"saved" doc:"True if the second read shows the delegate."`
	Principal  Principal `json:"principal" doc:"State from the second read."`
	Delegation bool      `json:"delegation" doc:"True if the principal has the delegation flag now. Without the flag, no delegate can act for it."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the delegate.
func (r DelegateSaved) MissingEvidence() string { return notShown(r.Saved, "the delegate") }

// DelegateGone is the result of removing a delegate.
type DelegateGone struct {
	DelegateID HexID     `json:"delegateId" doc:"Id of the delegate."`
	Gone       bool      `json:"gone" doc:"True if the second read no longer shows the delegate."`
	Principal  Principal `json:"principal" doc:"State from the second read."`
	Delegation bool      `json:"delegation" doc:"True if the principal has the delegation flag now. Removing the last delegate clears it."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the delegate.
func (r DelegateGone) MissingEvidence() string { return notDeleted(r.Gone, "the delegate") }

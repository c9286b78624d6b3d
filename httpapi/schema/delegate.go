package schema

// DelegateRequest names a principal that may act with the rights of another one.
type DelegateRequest struct {
	ID       HexID `path:"id" json:"-" names:"principal" doc:"16 hexadecimal digits."`
	Delegate HexID `path:"pid" json:"-" names:"principal" doc:"The principal, in 16 hexadecimal digits."`
}

// DelegateSaved is the verdict on adding a delegate.
type DelegateSaved struct {
	DelegateID HexID     `json:"delegateId" doc:"Who acts."`
	Saved      bool      `json:"saved" doc:"The delegate reads back."`
	Principal  Principal `json:"principal" doc:"As read back."`
	Delegation bool      `json:"delegation" doc:"Whether the principal has the delegation flag now; without it nobody may act for it."`
	Verdict
}

// Unproven returns "" if the delegate reads back.
func (r DelegateSaved) Unproven() string { return unshown(r.Saved, "the delegate") }

// DelegateGone is the verdict on removing a delegate.
type DelegateGone struct {
	DelegateID HexID     `json:"delegateId" doc:"Who acts."`
	Gone       bool      `json:"gone" doc:"The principal reads back without the delegate."`
	Principal  Principal `json:"principal" doc:"As read back."`
	Delegation bool      `json:"delegation" doc:"Whether the principal has the delegation flag now. It is cleared with the last delegate."`
	Verdict
}

// Unproven returns "" if the delegate is gone.
func (r DelegateGone) Unproven() string { return ungone(r.Gone, "the delegate") }

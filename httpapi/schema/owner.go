package schema

import "time"

// OwnerMark says which owner manages an object.
type OwnerMark struct {
	Kind  string     `json:"kind" enum:"role,principal,key,trustedCA,trustedServer,principalTrust,aclTemplate,templatedDirectory" doc:"As the change feed has it."`
	ID    HexID      `json:"id" doc:"Of the object, as the change feed has it: of a trusted server its system id."`
	Owner string     `json:"owner" doc:"As whoever set the mark spells it; empty where there is no mark."`
	Since *time.Time `json:"since" doc:"When the mark came to this owner; null where there is none."`
}

// OwnerQuery selects the marks of a kind.
type OwnerQuery struct {
	Kind  string `query:"kind,required" enum:"role,principal,key,trustedCA,trustedServer,principalTrust,aclTemplate,templatedDirectory" doc:"As the change feed has it."`
	Limit *int   `query:"limit" limit:"1..1000" doc:"Marks in a page, 100 when left out."`
	After *HexID `query:"after" names:"-" doc:"The next of an earlier page."`
}

// OwnerList is a page of marks, sorted by id.
type OwnerList struct {
	Count  int         `json:"count" doc:"Of this page."`
	Owners []OwnerMark `json:"owners" doc:"Marks that there are."`
	Next   *HexID      `json:"next" doc:"What the next page is after, or null where this is the last."`
	Detail string      `json:"detail" doc:"For people; its wording may change."`
}

// OwnedObject names an object as in the change feed.
type OwnedObject struct {
	Kind string `path:"kind" json:"-" names:"ofKind" enum:"role,principal,key,trustedCA,trustedServer,principalTrust,aclTemplate,templatedDirectory" doc:"As the change feed has it."`
	ID   HexID  `path:"id" json:"-" names:"owner" doc:"16 hexadecimal digits."`
}

// SetOwnerRequest marks an object.
type SetOwnerRequest struct {
	OwnedObject
	Owner  string `json:"owner" limit:"1..256" doc:"Who manages the object from now on: printable text that nobody else uses for itself."`
	Expect string `json:"expect,omitzero" limit:"1..256" doc:"Who holds the mark now; left out, nobody does."`
}

// ReleaseOwnerRequest removes a mark.
type ReleaseOwnerRequest struct {
	OwnedObject
	Expect string `query:"expect,required" limit:"1..256" doc:"Who holds the mark, so that nobody takes another's away."`
}

// OwnerSaved is the verdict on marking an object. With the code OWNED it
// has the existing mark.
type OwnerSaved struct {
	OwnerMark
	Saved bool `json:"saved" doc:"The mark reads back with the owner that was sent."`
	Verdict
}

// Unproven returns "" if the mark reads back.
func (r OwnerSaved) Unproven() string { return unshown(r.Saved && r.Owner != "", "the mark") }

// OwnerReleased is the verdict on removing a mark. With the code OWNED it has
// the mark that stays.
type OwnerReleased struct {
	OwnerMark
	Gone bool `json:"gone" doc:"A fresh read no longer has the mark."`
	Verdict
}

// Unproven returns "" if the mark is gone.
func (r OwnerReleased) Unproven() string { return ungone(r.Gone, "the mark") }

package schema

import "time"

// OwnerMark says which owner manages an object.
type OwnerMark struct {
	Kind  string     `json:"kind" enum:"OwnedKind" doc:"Kind as in the change feed."`
	ID    HexID      `json:"id" doc:"Id of the object as in the change feed; of a trusted server, its system id."`
	Owner string     `json:"owner" doc:"Name of the owner; empty if there is no mark."`
	Since *time.Time `json:"since" doc:"Time when this owner got the mark; null if there is no mark."`
}

// OwnerQuery selects the marks of a kind.
type OwnerQuery struct {
	Kind  string `query:"kind,required" enum:"OwnedKind" doc:"Kind as in the change feed."`
	Limit *int   `query:"limit" limit:"1..1000" doc:"Maximum number of marks in a page; default 100."`
	After *HexID `query:"after" names:"-" doc:"Value of next from the previous page."`
}

// OwnerList is a page of marks, sorted by id.
type OwnerList struct {
	Count  int         `json:"count" doc:"Number of objects in this page."`
	Owners []OwnerMark `json:"owners" doc:"Existing marks."`
	Next   *HexID      `json:"next" doc:"Value of after for the next page; null on the last page."`
	Detail string      `json:"detail" doc:"Text for people; the wording may change."`
}

// OwnedObject names an object as in the change feed.
type OwnedObject struct {
	Kind string `path:"kind" json:"-" names:"ofKind" enum:"OwnedKind" doc:"Kind as in the change feed."`
	ID   HexID  `path:"id" json:"-" names:"owner" doc:"16 hexadecimal digits."`
}

// SetOwnerRequest marks an object.
type SetOwnerRequest struct {
	OwnedObject
	Owner  string `json:"owner" limit:"1..256" doc:"New owner: printable text that no other manager uses for itself."`
	Expect string `json:"expect,omitzero" limit:"1..256" doc:"Current owner; omitted: the object has no mark."`
}

// ReleaseOwnerRequest removes a mark.
type ReleaseOwnerRequest struct {
	OwnedObject
	Expect string `query:"expect,required" limit:"1..256" doc:"Current owner. It prevents removing the mark of another owner."`
}

// OwnerSaved is the result of marking an object. With the code OWNED it has the existing mark.
type OwnerSaved struct {
	OwnerMark
	Saved bool `json:"saved" doc:"True if the second read shows the mark with the requested owner."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the mark.
func (r OwnerSaved) MissingEvidence() string { return notShown(r.Saved && r.Owner != "", "the mark") }

// OwnerReleased is the result of removing a mark. With the code OWNED it has the mark that stays.
type OwnerReleased struct {
	OwnerMark
	Gone bool `json:"gone" doc:"True if the second read no longer shows the mark."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the mark.
func (r OwnerReleased) MissingEvidence() string { return notDeleted(r.Gone, "the mark") }

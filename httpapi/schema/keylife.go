package schema

import "time"

// KeyFacts is the information about a key that responses may contain, never its bytes.
// For the key of a peer, a value that the peer does not send is null.
type KeyFacts struct {
	TTag       HiddenLink   `json:"ttag" doc:"Hidden link, the only handle of the key."`
	AlgID      *int         `json:"algid" doc:"The algorithm as a number: 1 HMAC-SHA384, 2 AES-256."`
	Algorithm  *string      `json:"algorithm"`
	KeyBytes   *int         `json:"keyBytes" doc:"Length of the key in bytes."`
	IVBytes    *int         `json:"ivBytes" doc:"Length of an initialisation vector in bytes."`
	State      *string      `json:"state" enum:"enabled,verifyOnly,disabled,destroying,destroyed" doc:"What may be done with the key; or null."`
	Lineage    *HiddenLink  `json:"lineage" doc:"Hidden link of the first key of the line, its own for that one; or null."`
	Generation *int         `json:"generation" doc:"From 1, in the line; or null."`
	Exportable *bool        `json:"exportable" doc:"Whether the key may leave the key server; or null."`
	CreatedAt  *time.Time   `json:"createdAt" doc:"When it was minted; or null."`
	Uses       *int64       `json:"uses" doc:"How often it was used; or null."`
	LastUsedAt *time.Time   `json:"lastUsedAt" doc:"When it was used last, or null where it never was."`
	DestroyAt  *time.Time   `json:"destroyAt" doc:"When its bytes go, or went; null where they stay."`
	Rotation   *KeyRotation `json:"rotation" doc:"How the keys of the line follow each other, or null where they do not by themselves."`
}

// KeyRotation says when keys of a key lineage are replaced and destroyed.
type KeyRotation struct {
	EveryDays        int `json:"everyDays" limit:"0..3650" doc:"The newest key is succeeded at this age; 0 is never."`
	VerifyOnlyDays   int `json:"verifyOnlyDays" limit:"0..3650" doc:"For how long a former key checks; then it is being destroyed. 0 is for ever."`
	DestroyAfterDays int `json:"destroyAfterDays" limit:"0..365" doc:"How long after that its bytes go; 0 is never, and it goes on checking."`
}

// DestroyKeyRequest names a key, and says how long it can be restored.
type DestroyKeyRequest struct {
	TTag      HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
	AfterDays *int       `json:"afterDays,omitzero" limit:"1..365" doc:"Days until its bytes go, 30 when left out."`
}

// KeyStateSaved is the verdict on changing the state of a key.
type KeyStateSaved struct {
	TTag      HiddenLink `json:"ttag" doc:"Hidden link of the key."`
	Saved     bool       `json:"saved" doc:"The state reads back."`
	State     string     `json:"state" enum:"enabled,verifyOnly,disabled,destroying,destroyed" doc:"As read back."`
	DestroyAt *time.Time `json:"destroyAt" doc:"When its bytes go, or null."`
	Verdict
}

// Unproven returns "" if the state reads back.
func (r KeyStateSaved) Unproven() string {
	return unshown(r.Saved && r.TTag != "" && r.State != "", "the state of the key")
}

// KeyRotated is the verdict on rotating a key lineage.
type KeyRotated struct {
	KeyFacts
	Saved bool `json:"saved" doc:"The successor reads back as the newest key of its line."`
	Verdict
}

// Unproven returns "" if the successor reads back.
func (r KeyRotated) Unproven() string {
	return unshown(r.Saved && r.TTag != "", "the successor of the key")
}

// KeyRotationRequest sets when keys of a key lineage are replaced and destroyed.
type KeyRotationRequest struct {
	TTag             HiddenLink `json:"ttag" names:"key" doc:"Hidden link of any key of the line."`
	EveryDays        int        `json:"everyDays" limit:"0..3650" doc:"The newest key is succeeded at this age; 0 is never."`
	VerifyOnlyDays   int        `json:"verifyOnlyDays" limit:"0..3650" doc:"For how long a former key checks; then it is being destroyed. 0 is for ever."`
	DestroyAfterDays int        `json:"destroyAfterDays" limit:"0..365" doc:"How long after that its bytes go; 0 is never, and it goes on checking."`
}

// KeyRotationSaved is the verdict on setting the rotation.
type KeyRotationSaved struct {
	TTag     HiddenLink   `json:"ttag" doc:"Hidden link of the newest key of the line."`
	Lineage  *HiddenLink  `json:"lineage" doc:"Hidden link of its first key."`
	Saved    bool         `json:"saved" doc:"The rotation reads back."`
	Rotation *KeyRotation `json:"rotation" doc:"As read back, null where nothing follows by itself."`
	Verdict
}

// Unproven returns "" if the rotation reads back.
func (r KeyRotationSaved) Unproven() string { return unshown(r.Saved && r.TTag != "", "the rotation") }

// KeyQuery selects keys that the caller may read.
type KeyQuery struct {
	Lineage *HiddenLink `query:"lineage" names:"key" doc:"Only the line that begins with this key, oldest first."`
	State   *string     `query:"state" enum:"enabled,verifyOnly,disabled,destroying,destroyed" doc:"Only keys in this state."`
	Limit   *int        `query:"limit" limit:"1..500" doc:"Keys in a page, 100 when left out."`
	After   *HiddenLink `query:"after" names:"-" doc:"The next of an earlier page."`
}

// KeyListing is a page of keys, in a stable order.
type KeyListing struct {
	Count  int         `json:"count" doc:"Of this page."`
	Keys   []KeyFacts  `json:"keys" doc:"Keys whose list lets the caller read."`
	Next   *HiddenLink `json:"next" doc:"What the next page is after, or null where this is the last. A page may be short, even empty, and not be the last."`
	Detail string      `json:"detail" doc:"For people; its wording may change."`
}

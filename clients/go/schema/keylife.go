package schema

import "time"

// KeyFacts is the information about a key that responses may contain, never its bytes.
// For the key of a peer, a value that the peer does not send is null.
type KeyFacts struct {
	TTag       HiddenLink   `json:"ttag" doc:"Hidden link, the only identifier of the key."`
	AlgID      *int         `json:"algid" doc:"Number of the algorithm: 1 HMAC-SHA384, 2 AES-256."`
	Algorithm  *string      `json:"algorithm"`
	KeyBytes   *int         `json:"keyBytes" doc:"Length of the key in bytes."`
	IVBytes    *int         `json:"ivBytes" doc:"Length of an initialization vector in bytes."`
	State      *string      `json:"state" enum:"KeyState" doc:"State of the key, which limits its use; or null."`
	Lineage    *HiddenLink  `json:"lineage" doc:"Hidden link of the first key of the lineage, which may be the key itself; or null."`
	Generation *int         `json:"generation" doc:"Number of the key within its lineage, from 1; or null."`
	Exportable *bool        `json:"exportable" doc:"True if the key may leave the key server; or null."`
	CreatedAt  *time.Time   `json:"createdAt" doc:"Time of creation; or null."`
	Uses       *int64       `json:"uses" doc:"Number of uses; or null."`
	LastUsedAt *time.Time   `json:"lastUsedAt" doc:"Time of the last use; null if there was none."`
	DestroyAt  *time.Time   `json:"destroyAt" doc:"Time when the bytes of the key are or were deleted; null if no deletion is scheduled."`
	Rotation   *KeyRotation `json:"rotation" doc:"Rotation schedule of the lineage; null if it has none."`
}

// KeyRotation says when keys of a key lineage are replaced and destroyed.
type KeyRotation struct {
	EveryDays        int `json:"everyDays" limit:"0..3650" doc:"Age in days at which the newest key gets a successor; 0: never."`
	VerifyOnlyDays   int `json:"verifyOnlyDays" limit:"0..3650" doc:"Days for which an older key still verifies. Then its destruction begins. 0: no end."`
	DestroyAfterDays int `json:"destroyAfterDays" limit:"0..365" doc:"Days from the start of the destruction until the bytes are deleted. 0: older keys are not destroyed and still verify."`
}

// DestroyKeyRequest names a key, and says how long it can be restored.
type DestroyKeyRequest struct {
	TTag      HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
	AfterDays *int       `json:"afterDays,omitzero" limit:"1..365" doc:"Days until the bytes are deleted; default 30."`
}

// KeyStateSaved is the result of changing the state of a key.
type KeyStateSaved struct {
	TTag      HiddenLink `json:"ttag" doc:"Hidden link of the key."`
	Saved     bool       `json:"saved" doc:"True if the second read shows the state."`
	State     string     `json:"state" enum:"KeyState" doc:"State from the second read."`
	DestroyAt *time.Time `json:"destroyAt" doc:"Time when the bytes are deleted; or null."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the state.
func (r KeyStateSaved) MissingEvidence() string {
	return notShown(r.Saved && r.TTag != "" && r.State != "", "the state of the key")
}

// KeyRotated is the result of rotating a key lineage.
type KeyRotated struct {
	KeyFacts
	Saved bool `json:"saved" doc:"True if the second read shows the successor as the newest key of its lineage."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the successor.
func (r KeyRotated) MissingEvidence() string {
	return notShown(r.Saved && r.TTag != "", "the successor of the key")
}

// KeyRotationRequest sets when keys of a key lineage are replaced and destroyed.
type KeyRotationRequest struct {
	TTag             HiddenLink `json:"ttag" names:"key" doc:"Hidden link of any key of the lineage."`
	EveryDays        int        `json:"everyDays" limit:"0..3650" doc:"Age in days at which the newest key gets a successor; 0: never."`
	VerifyOnlyDays   int        `json:"verifyOnlyDays" limit:"0..3650" doc:"Days for which an older key still verifies. Then its destruction begins. 0: no end."`
	DestroyAfterDays int        `json:"destroyAfterDays" limit:"0..365" doc:"Days from the start of the destruction until the bytes are deleted. 0: older keys are not destroyed and still verify."`
}

// KeyRotationSaved is the result of setting the rotation.
type KeyRotationSaved struct {
	TTag     HiddenLink   `json:"ttag" doc:"Hidden link of the newest key of the lineage."`
	Lineage  *HiddenLink  `json:"lineage" doc:"Hidden link of the first key of the lineage."`
	Saved    bool         `json:"saved" doc:"True if the second read shows the schedule."`
	Rotation *KeyRotation `json:"rotation" doc:"Schedule from the second read; null if the lineage has none."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the rotation.
func (r KeyRotationSaved) MissingEvidence() string {
	return notShown(r.Saved && r.TTag != "", "the rotation")
}

// KeyQuery selects keys that the caller may read.
type KeyQuery struct {
	Lineage *HiddenLink `query:"lineage" names:"key" doc:"Return only the lineage that begins with this key, oldest key first."`
	State   *string     `query:"state" enum:"KeyState" doc:"Return only keys in this state."`
	Limit   *int        `query:"limit" limit:"1..500" doc:"Maximum number of keys in a page; default 100."`
	After   *HiddenLink `query:"after" names:"-" doc:"Value of next from the previous page."`
}

// KeyListing is a page of keys, in a stable order.
type KeyListing struct {
	Count  int         `json:"count" doc:"Number of objects in this page."`
	Keys   []KeyFacts  `json:"keys" doc:"Keys that the caller may read by their ACLs."`
	Next   *HiddenLink `json:"next" doc:"Value of after for the next page; null on the last page. A page may be short or empty without being the last."`
	Detail string      `json:"detail" doc:"Text for people; the wording may change."`
}

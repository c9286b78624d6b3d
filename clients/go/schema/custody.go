package schema

import "time"

// KEK is the public information about the key-encryption key.
type KEK struct {
	Scheme         string `json:"scheme" doc:"Scheme of the URL of the key; base64key for a local key."`
	Fingerprint    string `json:"fingerprint" doc:"16 hexadecimal digits that identify the key. The same key has another fingerprint in another database, so the fingerprint cannot be used to test keys."`
	PreviousNeeded *bool  `json:"previousNeeded" doc:"True if a data key still needs --kek-previous; null without that flag. If it is false at every replica, --kek-previous is no longer needed."`
}

// DataKey is a key that wraps the keys of the database.
type DataKey struct {
	ID        HexID      `json:"id" doc:"All zero for the first data key of a database from a release with only one."`
	CreatedAt *time.Time `json:"createdAt" doc:"Null if it was not recorded."`
	State     string     `json:"state" enum:"DataKeyState" doc:"active: wraps keys. retiring: still unwraps keys. retired: only this record is left."`
	Wrapped   int64      `json:"wrapped" doc:"Number of keys that it wraps, including private keys of this server."`
}

// Rewrap is the progress of rewrapping keys under the active data key.
type Rewrap struct {
	Done    int64 `json:"done" doc:"Number of keys under the active data key."`
	Total   int64 `json:"total" doc:"Number of keys under all data keys."`
	Refused int64 `json:"refused" doc:"Number of rows whose MAC was wrong at the last check of this replica. They stay unchanged, and so does the data key that may wrap them. keyserver-operator doctor names them."`
}

// Custody is the response of GET /api/custody.
type Custody struct {
	KEK      KEK       `json:"kek" doc:"Key-encryption key, which wraps the data keys."`
	DataKeys []DataKey `json:"dataKeys" doc:"Data keys, oldest first; of the retired ones only the last 32."`
	Rewrap   Rewrap    `json:"rewrap" doc:"Progress of rewrapping under the active data key."`
	Detail   string    `json:"detail" doc:"Text for people; the wording may change."`
}

// DataKeyRotated is the result of making a new data key.
type DataKeyRotated struct {
	Saved     bool      `json:"saved" doc:"True if the second read shows the new data key as active."`
	DataKeyID HexID     `json:"dataKeyId" doc:"Id of the new data key."`
	KEK       KEK       `json:"kek" doc:"Key-encryption key, which wraps the data keys."`
	DataKeys  []DataKey `json:"dataKeys" doc:"State from the second read."`
	Rewrap    Rewrap    `json:"rewrap" doc:"Progress at the second read; GET /api/custody returns the current one."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the new data key as the active one.
func (r DataKeyRotated) MissingEvidence() string {
	for _, k := range r.DataKeys {
		if k.ID == r.DataKeyID && k.State == "active" {
			return notShown(r.Saved, "the data key")
		}
	}
	return notShown(false, "the data key")
}

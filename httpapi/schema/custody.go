package schema

import "time"

// KEK is the public information about the key-encryption key.
type KEK struct {
	Scheme         string `json:"scheme" doc:"Of its URL: base64key for a key of our own."`
	Fingerprint    string `json:"fingerprint" doc:"16 hexadecimal digits that change with the key, and are others at another database: nobody can try keys against them."`
	PreviousNeeded *bool  `json:"previousNeeded" doc:"Whether --kek-previous still opens a data key that --kek does not; null where the flag is not given. Once it is false at every replica, that key is not needed any more."`
}

// DataKey is a key that wraps the keys of the database.
type DataKey struct {
	ID        HexID      `json:"id" doc:"All zero for the first one of a database from before there were several."`
	CreatedAt *time.Time `json:"createdAt" doc:"Null where it was not noted."`
	State     string     `json:"state" enum:"active,retiring,retired" doc:"active wraps; retiring opens what is still under it; of a retired one nothing is left but this."`
	Wrapped   int64      `json:"wrapped" doc:"What is under it: keys, and private keys of this server."`
}

// Rewrap is the progress of wrapping under the active data key.
type Rewrap struct {
	Done    int64 `json:"done" doc:"What is under the active data key."`
	Total   int64 `json:"total" doc:"What is under any."`
	Refused int64 `json:"refused" doc:"Rows that did not agree with their MACs at this replica's last look: they stay as they are, and so does the data key that they may be under. doctor names them."`
}

// Custody is the response of GET /api/custody.
type Custody struct {
	KEK      KEK       `json:"kek" doc:"The key-encryption key, which wraps the data keys."`
	DataKeys []DataKey `json:"dataKeys" doc:"Oldest first, of the retired ones the last 32."`
	Rewrap   Rewrap    `json:"rewrap" doc:"How far wrapping under the active data key has come."`
	Detail   string    `json:"detail" doc:"For people; its wording may change."`
}

// DataKeyRotated is the verdict on making a new data key.
type DataKeyRotated struct {
	Saved     bool      `json:"saved" doc:"The new data key is the active one when read back."`
	DataKeyID HexID     `json:"dataKeyId" doc:"The new one."`
	KEK       KEK       `json:"kek" doc:"The key-encryption key, which wraps the data keys."`
	DataKeys  []DataKey `json:"dataKeys" doc:"As read back."`
	Rewrap    Rewrap    `json:"rewrap" doc:"As read back; GET /api/custody says how it goes on."`
	Verdict
}

// Unproven returns "" if the new data key reads back as the active one.
func (r DataKeyRotated) Unproven() string {
	for _, k := range r.DataKeys {
		if k.ID == r.DataKeyID && k.State == "active" {
			return unshown(r.Saved, "the data key")
		}
	}
	return unshown(false, "the data key")
}

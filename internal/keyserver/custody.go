package keyserver

import "time"

// DataKeyState is what a data key is for.
type DataKeyState string

// The states. One data key is active at any time, and wraps; a retiring one still
// opens what is under it; of a retired one nothing is left but that it was.
const (
	DataKeyActive   DataKeyState = "active"
	DataKeyRetiring DataKeyState = "retiring"
	DataKeyRetired  DataKeyState = "retired"
)

// DataKey is a key that wraps the keys of the database, without its bytes. The id of
// the first one of a database from before there were several is zero.
type DataKey struct {
	ID        ID
	CreatedAt time.Time // zero where it was not noted
	RetiredAt time.Time // zero until then
	State     DataKeyState
	Wrapped   int64 // what is under it
}

// KEK is what may be known of a key-encryption key.
type KEK struct {
	Scheme      string
	Fingerprint string // 16 hex digits; the same key has another one at another database
	// PreviousNeeded says whether a data key is still wrapped by --kek-previous; nil
	// without that flag.
	PreviousNeeded *bool
}

// Rewrap is how far the wrapping under a new data key has come.
type Rewrap struct {
	Done, Total int64
	// Refused are rows that did not agree with their MACs at the last look. They stay
	// as they are, and so does the data key that they may be under.
	Refused int64
}

// Custody is how the keys of a key server are kept.
type Custody struct {
	KEK      KEK
	DataKeys []DataKey // oldest first
	Rewrap   Rewrap
}

package keyserver

import "time"

// DataKeyState is the state of a data key.
type DataKeyState string

// The states. Exactly one data key is active and wraps keys. A retiring data key only unwraps keys. A retired data key
// is only a record, without its bytes.
const (
	DataKeyActive   DataKeyState = "active"
	DataKeyRetiring DataKeyState = "retiring"
	DataKeyRetired  DataKeyState = "retired"
)

// DataKey describes a data key, which wraps the keys of the database, without its bytes. The id is zero for the first
// data key of a database from a release with only one data key.
type DataKey struct {
	ID        ID
	CreatedAt time.Time // zero if it was not recorded
	RetiredAt time.Time // zero until then
	State     DataKeyState
	Wrapped   int64 // number of keys that it wraps
}

// KEK is the public information about a key-encryption key.
type KEK struct {
	Scheme      string
	Fingerprint string // 16 hex digits; the same key has another fingerprint in another database
	// PreviousNeeded reports whether a data key is still wrapped by --kek-previous; nil
	// without that flag.
	PreviousNeeded *bool
}

// Rewrap is the progress of rewrapping keys under a new data key.
type Rewrap struct {
	Done, Total int64
	// Refused counts the rows whose MAC was wrong at the last check. These rows stay unchanged, and the data key that
	// may wrap them stays, too.
	Refused int64
}

// Custody describes the key-encryption key and the data keys of a key server.
type Custody struct {
	KEK      KEK
	DataKeys []DataKey // oldest first
	Rewrap   Rewrap
}

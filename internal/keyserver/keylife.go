package keyserver

import (
	"context"
	"time"
)

// KeyState is what may be done with a key.
type KeyState string

// The states of a key.
const (
	KeyEnabled    KeyState = "enabled"
	KeyVerifyOnly KeyState = "verifyOnly" // MACs are checked and ciphertext is decrypted; none is made
	KeyDisabled   KeyState = "disabled"
	KeyDestroying KeyState = "destroying" // disabled, until its bytes go
	KeyDestroyed  KeyState = "destroyed"  // without bytes, for good
)

// KeyStates are all of them, in the order of a key's life.
var KeyStates = []KeyState{KeyEnabled, KeyVerifyOnly, KeyDisabled, KeyDestroying, KeyDestroyed}

// Makes reports whether new MACs, ciphertext and copies of the key are made.
func (s KeyState) Makes() bool { return s == KeyEnabled }

// Checks reports whether MACs are verified and ciphertext is decrypted.
func (s KeyState) Checks() bool { return s == KeyEnabled || s == KeyVerifyOnly }

// KeyLife is where a key stands in its life.
type KeyLife struct {
	State KeyState
	// Lineage is the first key of the line; its own id for that one.
	Lineage    ID
	Generation int // from 1
	Exportable bool
	StateAt    time.Time // when it came into State; zero since it was made
	DestroyAt  time.Time // when its bytes go; zero for never
}

// DefaultDestroyDays is how long a key that is being destroyed can be restored, where
// nobody says.
const DefaultDestroyDays = 30

// FirstLife is the life of a key that succeeds none.
func FirstLife(key ID) KeyLife {
	return KeyLife{State: KeyEnabled, Lineage: key, Generation: 1, Exportable: true}
}

// KeyAct is what the owner of a key does to its state.
type KeyAct string

// The acts.
const (
	DisableKey KeyAct = "disable"
	EnableKey  KeyAct = "enable"
	DestroyKey KeyAct = "destroy" // its bytes go later
	RestoreKey KeyAct = "restore" // takes that back
)

// KeyStateChange asks for an act.
type KeyStateChange struct {
	Link HiddenLink
	Act  KeyAct
	Days int // of DestroyKey: until the bytes go
}

// KeyRotation is how the keys of a line follow each other, in days. 0 is never.
type KeyRotation struct {
	Every        int // the newest key is succeeded at this age
	VerifyOnly   int // a former key checks for so long, and is then destroyed
	DestroyAfter int // so long after that its bytes go
}

// IsZero reports whether nothing follows by itself.
func (r KeyRotation) IsZero() bool { return r == KeyRotation{} }

// KeyRotationChange asks for another rotation of the line that a key is of.
type KeyRotationChange struct {
	Link     HiddenLink
	Rotation KeyRotation
}

// KeyLine is what of a line decides how it goes on.
type KeyLine struct {
	Newest   KeyMetadata
	Rotation KeyRotation
}

// KeyFilter selects keys of those that the caller may read.
type KeyFilter struct {
	Lineage HiddenLink // of this line alone, oldest first; empty for every key
	State   KeyState   // empty for any
	After   HiddenLink // those behind this one
	Limit   int
}

// KeyPage is a page of keys. It may be short, even empty, and still have a Next.
type KeyPage struct {
	Keys []KeyMetadata
	Next HiddenLink // After of the next page, empty where this is the last
}

// KeyLives are the operations on how keys age. Each that names a key answers
// KEY_NOT_FOUND where there is none, INVALID_ARGUMENT where it is a peer's, and
// KEY_STATE where the state of the key rules it out; all but ListKeys need OWNER.
type KeyLives interface {
	// ListKeys reads the metadata of keys that the caller's entries let him read.
	ListKeys(ctx context.Context, by Caller, f KeyFilter) (KeyPage, error)
	// KeyState reads the metadata of a key, whoever its owner logged in as.
	KeyState(ctx context.Context, by Caller, link HiddenLink) (KeyMetadata, error)
	ChangeKeyState(ctx context.Context, by Caller, change KeyStateChange) error
	// KeyLine reads the newest key of the line that a key is of.
	KeyLine(ctx context.Context, by Caller, link HiddenLink) (KeyLine, error)
	// RotateKey mints the successor of that one and answers it.
	RotateKey(ctx context.Context, by Caller, link HiddenLink) (HiddenLink, error)
	SetKeyRotation(ctx context.Context, by Caller, change KeyRotationChange) error
}

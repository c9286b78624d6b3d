package keyserver

import (
	"context"
	"time"
)

// KeyState decides which uses of a key are allowed.
type KeyState string

// The states of a key.
const (
	KeyEnabled    KeyState = "enabled"
	KeyVerifyOnly KeyState = "verifyOnly" // verifies MACs and decrypts; makes no MACs or ciphertext
	KeyDisabled   KeyState = "disabled"
	KeyDestroying KeyState = "destroying" // disabled; its bytes will be deleted
	KeyDestroyed  KeyState = "destroyed"  // permanent; the bytes are deleted
)

// KeyStates are all states, in the order of a key's life cycle.
var KeyStates = []KeyState{KeyEnabled, KeyVerifyOnly, KeyDisabled, KeyDestroying, KeyDestroyed}

// MayCreate reports whether the key may make MACs and ciphertext and be exported.
func (s KeyState) MayCreate() bool { return s == KeyEnabled }

// MayVerify reports whether the key may verify MACs and decrypt.
func (s KeyState) MayVerify() bool { return s == KeyEnabled || s == KeyVerifyOnly }

// KeyLife is the life cycle of a key: its state, its place in its lineage, and its times.
type KeyLife struct {
	State KeyState
	// Lineage is the id of the first key of the lineage; for that key, its own id.
	Lineage    ID
	Generation int // from 1
	Exportable bool
	StateAt    time.Time // start of State; zero if unchanged since creation
	DestroyAt  time.Time // when its bytes are deleted; zero for never
}

// DefaultDestroyDays is the default number of days in which a key that is being destroyed
// can be restored.
const DefaultDestroyDays = 30

// FirstLife returns the life cycle of a new key that begins a lineage.
func FirstLife(key ID) KeyLife {
	return KeyLife{State: KeyEnabled, Lineage: key, Generation: 1, Exportable: true}
}

// KeyAction is a change that the owner makes to the state of a key.
type KeyAction string

// The actions.
const (
	DisableKey KeyAction = "disable"
	EnableKey  KeyAction = "enable"
	DestroyKey KeyAction = "destroy" // its bytes are deleted later
	RestoreKey KeyAction = "restore" // undoes DestroyKey
)

// KeyStateChange is a request to change the state of a key.
type KeyStateChange struct {
	Link   HiddenLink
	Action KeyAction
	Days   int // for DestroyKey: days until the bytes are deleted
}

// KeyRotation is the rotation schedule of a key lineage, in days. 0 means never.
type KeyRotation struct {
	Every        int // age at which the newest key gets a successor
	VerifyOnly   int // how long an older key verifies before it is scheduled for destruction
	DestroyAfter int // how long from then until its bytes are deleted
}

// IsZero reports whether there is no schedule.
func (r KeyRotation) IsZero() bool { return r == KeyRotation{} }

// KeyRotationChange is a request to change the schedule of the lineage to which a key
// belongs.
type KeyRotationChange struct {
	Link     HiddenLink
	Rotation KeyRotation
}

// KeyLineage has the parts of a key lineage that decide about its rotation.
type KeyLineage struct {
	Newest   KeyMetadata
	Rotation KeyRotation
}

// KeyFilter selects keys from those that the caller may read.
type KeyFilter struct {
	Lineage HiddenLink // only this lineage, oldest first; empty for every key
	State   KeyState   // empty for any
	After   HiddenLink // only keys after this one
	Limit   int
}

// KeyPage is a page of keys. A page can be short or even empty although another page follows.
type KeyPage struct {
	Keys []KeyMetadata
	Next HiddenLink // After of the next page, empty on the last page
}

// KeyLives are the operations on the life cycle of keys. A method that names a key returns KEY_NOT_FOUND if the key
// does not exist, INVALID_ARGUMENT if a peer owns it, and KEY_STATE if its state does not allow the operation. All
// methods except ListKeys need OWNER.
type KeyLives interface {
	// ListKeys returns the metadata of keys that the caller's ACL entries allow it to
	// read.
	ListKeys(ctx context.Context, by Caller, f KeyFilter) (KeyPage, error)
	// KeyState returns the metadata of a key. The owner may have logged in by any method.
	KeyState(ctx context.Context, by Caller, link HiddenLink) (KeyMetadata, error)
	ChangeKeyState(ctx context.Context, by Caller, change KeyStateChange) error
	// KeyLineage returns the newest key and the rotation of the lineage to which a key
	// belongs.
	KeyLineage(ctx context.Context, by Caller, link HiddenLink) (KeyLineage, error)
	// RotateKey creates the successor of the newest key of the lineage and returns its hidden link.
	RotateKey(ctx context.Context, by Caller, link HiddenLink) (HiddenLink, error)
	SetKeyRotation(ctx context.Context, by Caller, change KeyRotationChange) error
}

package keyserver

import "time"

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

// FirstLife is the life of a key that succeeds none.
func FirstLife(key ID) KeyLife {
	return KeyLife{State: KeyEnabled, Lineage: key, Generation: 1, Exportable: true}
}

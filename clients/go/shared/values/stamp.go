package values

import (
	"encoding/binary"
	"time"
)

// Stamp is a raw 8-byte time: big-endian, unsigned milliseconds since 1970 UTC. All zero
// means unset.
type Stamp [8]byte

// StampOf returns the stamp of t, truncated to milliseconds. A time before 1970 gives an
// unset stamp.
func StampOf(t time.Time) Stamp {
	var s Stamp
	if ms := t.UnixMilli(); ms > 0 {
		binary.BigEndian.PutUint64(s[:], uint64(ms))
	}
	return s
}

// IsUnset reports whether the stamp sets no bound.
func (s Stamp) IsUnset() bool { return s == Stamp{} }

// Millis returns the milliseconds since 1970 that the stamp holds.
func (s Stamp) Millis() uint64 { return binary.BigEndian.Uint64(s[:]) }

package keyserver

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// A set contains exactly the given serial numbers, independent of order and leading zeros.
func TestSerialSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		serial := rapid.SliceOfN(rapid.Byte(), 0, 24)
		in := rapid.SliceOfN(serial, 0, 40).Draw(t, "in")
		probe := serial.Draw(t, "probe")
		same := func(a, b []byte) bool { return bytes.Equal(bytes.TrimLeft(a, "\x00"), bytes.TrimLeft(b, "\x00")) }
		set, want := NewSerialSet(in), false
		for _, s := range in {
			want = want || same(s, probe)
			if !set.Has(s) || !set.Has(append([]byte{0}, s...)) {
				t.Fatalf("%x is missing", s)
			}
		}
		if set.Has(probe) != want || set.Len() > len(in) {
			t.Fatalf("%x: got %v in a set of %d", probe, !want, set.Len())
		}
	})
}

package values

import (
	"slices"
	"testing"
	"time"
)

func TestWiden(t *testing.T) {
	for asked, held := range map[Rights]Rights{
		0: 0, Read: Read, Write: Read | Write, Owner: Owner | Write | Read,
		MandatoryGroup: MandatoryGroup, HostMatrix: HostMatrix,
		Write | HostMatrix: Read | Write | HostMatrix, AllRights: AllRights,
	} {
		if got := asked.Widen(); got != held {
			t.Errorf("%v widens to %v, want %v", asked.Names(), got.Names(), held.Names())
		}
	}
	for r := range AllRights + 1 {
		if w := r.Widen(); !w.Has(r) || w.Widen() != w {
			t.Errorf("widening %v loses rights or does not settle", r.Names())
		}
	}
}

func TestRightNames(t *testing.T) {
	for r := range AllRights + 1 {
		var back Rights
		for _, name := range r.Names() {
			bit, ok := ParseRight(name)
			if !ok || !slices.Contains(RightNames(), name) {
				t.Fatalf("%s is not a name", name)
			}
			back |= bit
		}
		if back != r {
			t.Errorf("%d comes back as %d", r, back)
		}
	}
	for _, name := range []string{"", "read", "READ ", "ALL", "READ|WRITE"} {
		if _, ok := ParseRight(name); ok {
			t.Errorf("%q is a right", name)
		}
	}
	if (Rights(0)).Names() == nil {
		t.Error("no rights are null and not an empty list")
	}
}

func TestStamp(t *testing.T) {
	at := time.Date(2026, 1, 31, 8, 0, 0, 123_456_789, time.FixedZone("", 3600))
	for name, tc := range map[string]struct {
		at     time.Time
		millis uint64
	}{
		"cut to milliseconds, zone does not matter": {at, uint64(at.UnixMilli())},
		"the epoch is unset":                        {time.UnixMilli(0), 0},
		"before the epoch is unset":                 {time.UnixMilli(-1), 0},
		"the zero time is unset":                    {time.Time{}, 0},
		"the first millisecond":                     {time.UnixMilli(1), 1},
	} {
		s := StampOf(tc.at)
		if s.Millis() != tc.millis || s.IsUnset() != (tc.millis == 0) {
			t.Errorf("%s: %v is %d", name, s, s.Millis())
		}
	}
	if s := (Stamp{0x80}); s.Millis() != 1<<63 {
		t.Errorf("the first bit is read as a sign: %d", s.Millis())
	}
}

package password_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
)

var dearer = password.Cost{MemoryKiB: 32 * 1024, Passes: 1, Lanes: 2}

func hashOf(t *testing.T, c password.Cost, text string) string {
	t.Helper()
	hash, err := c.Hash(t.Context(), text, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func TestCheck(t *testing.T) {
	ctx := context.Background()
	var shipped password.Cost
	hash, other := hashOf(t, shipped, "correct horse"), hashOf(t, shipped, "correct horse")
	if hash == other {
		t.Error("two hashes of one password are equal: there is no salt")
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("the zero cost is not the shipped one: %s", hash)
	}
	replaced := func(old, by string) string { return strings.Replace(hash, old, by, 1) }
	cases := map[string]struct {
		password, hash string
		ok, broken     bool
	}{
		"Wrong":       {password: "correct horsf", hash: hash},
		"Empty":       {password: "", hash: hash},
		"NoSuchName":  {password: "correct horse", hash: ""},
		"ChangedCost": {password: "correct horse", hash: replaced("t=2", "t=1")},
		"Right":       {password: "correct horse", hash: hash, ok: true},
		"OtherCost":   {password: "correct horse", hash: hashOf(t, dearer, "correct horse"), ok: true},

		"Malformed":      {hash: "$argon2id$", broken: true},
		"OtherMethod":    {hash: replaced("argon2id", "argon2_d"), broken: true},
		"OtherVersion":   {hash: replaced("v=19", "v=16"), broken: true},
		"LeadingZero":    {hash: replaced("t=2", "t=02"), broken: true},
		"Sign":           {hash: replaced("t=2", "t=+2"), broken: true},
		"Hexadecimal":    {hash: replaced("m=19456", "m=0x4c00"), broken: true},
		"Space":          {hash: replaced("m=19456", "m= 19456"), broken: true},
		"OtherOrder":     {hash: replaced("m=19456,t=2", "t=2,m=19456"), broken: true},
		"MoreParameters": {hash: replaced("p=1", "p=1,keyid=a"), broken: true},
		"PartMissing":    {hash: replaced("m=19456,", ""), broken: true},
		"Overflow":       {hash: replaced("m=19456", "m=4294986752"), broken: true}, // 2^32 + 19456
		"NoMemory":       {hash: replaced("m=19456", "m=7"), broken: true},
		"Gigabytes":      {hash: replaced("m=19456", "m=1048576"), broken: true},
		"NoPasses":       {hash: replaced("t=2", "t=0"), broken: true},
		"Minutes":        {hash: replaced("t=2", "t=100000"), broken: true},
		"NoLanes":        {hash: replaced("p=1", "p=0"), broken: true},
		"ManyLanes":      {hash: replaced("p=1", "p=255"), broken: true},
		"LanesOverflow":  {hash: replaced("p=1", "p=257"), broken: true},
		"ShortSum":       {hash: hash[:len(hash)-4], broken: true},
		"LongSum":        {hash: hash + "AAAA", broken: true},
		"LineInSum":      {hash: hash[:len(hash)-4] + "\n" + hash[len(hash)-4:], broken: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ok, err := shipped.Check(ctx, tc.password, tc.hash)
			if ok != tc.ok || (err != nil) != tc.broken {
				t.Errorf("got %v, %v", ok, err)
			}
			if tc.broken && (shipped.Outdated(tc.hash) || password.Same(tc.hash, hash)) {
				t.Error("a broken hash is outdated, or the same as another")
			}
		})
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if ok, _ := shipped.Check(ended, "wrong", hash); ok {
		t.Error("a check without time to hash matched")
	}
}

// TestUnknownNamesTakeTheSameWork checks that an empty hash is checked with the memory of the configured cost, not of
// the default cost.
func TestUnknownNamesTakeTheSameWork(t *testing.T) {
	for _, c := range []password.Cost{{}, dearer} {
		hash := hashOf(t, c, "correct horse")
		allocated := func(encoded string) int64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if ok, err := c.Check(t.Context(), "wrong", encoded); ok || err != nil {
				t.Fatal(ok, err)
			}
			runtime.ReadMemStats(&after)
			return int64(after.TotalAlloc - before.TotalAlloc)
		}
		known, unknown := allocated(hash), allocated("")
		if unknown < known*9/10 || unknown > known*11/10 {
			t.Errorf("%+v: a known name takes %d bytes, an unknown one %d", c, known, unknown)
		}
	}
}

func TestRehash(t *testing.T) {
	var shipped password.Cost
	old := hashOf(t, dearer, "correct horse")
	if !shipped.Outdated(old) || dearer.Outdated(old) || shipped.Outdated("") {
		t.Error("a hash is outdated if its cost is another one")
	}
	renewed, err := shipped.Rehash(t.Context(), "correct horse", old)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := shipped.Check(t.Context(), "correct horse", renewed); !ok || err != nil || shipped.Outdated(renewed) {
		t.Errorf("the new hash %s: %v, %v", renewed, ok, err)
	}
	forged := renewed[:len(renewed)-43] + strings.Repeat("A", 43)
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"Equal":        {old, old, true},
		"Rehashed":     {old, renewed, true},
		"SetAgain":     {renewed, hashOf(t, shipped, "correct horse"), false},
		"SetAtNewCost": {old, hashOf(t, shipped, "correct horse"), false},
		"OtherSum":     {renewed, forged, false},
		"None":         {old, "", false},
	} {
		if (password.Lasting(tc.a) == password.Lasting(tc.b)) != (tc.same || name == "OtherSum") {
			t.Errorf("%s: the lasting parts are %s and %s", name, password.Lasting(tc.a), password.Lasting(tc.b))
		}
		if password.Same(tc.a, tc.b) != tc.same || password.Same(tc.b, tc.a) != tc.same {
			t.Errorf("%s: not %v", name, tc.same)
		}
	}
	if _, err := shipped.Rehash(t.Context(), "correct horse", "$argon2id$"); err == nil {
		t.Error("a broken hash was renewed")
	}
}

func TestCostsOutOfBounds(t *testing.T) {
	for _, c := range []password.Cost{
		{MemoryKiB: 8}, {MemoryKiB: 8, Passes: 1}, {Passes: 1, Lanes: 1}, {MemoryKiB: 15, Passes: 1, Lanes: 2},
		{MemoryKiB: 1 << 20, Passes: 1, Lanes: 1}, {MemoryKiB: 8, Passes: 17, Lanes: 1}, {MemoryKiB: 19456, Passes: 2, Lanes: 17},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			if hash, err := c.Hash(t.Context(), "correct horse", rand.Reader); err == nil {
				t.Errorf("it made %s, which no check accepts", hash)
			}
		})
	}
}

package keyserver

import (
	"testing"

	"pgregory.net/rapid"
)

// The only wildcard of a pattern is the one that the key server appends.
func TestPattern(t *testing.T) {
	for prefix, want := range map[string]string{
		"": "%", "ann": "ann%", "50%": `50\%%`, "a_b": `a\_b%`, "a*": "a*%", `a\`: `a\\%`, `\%_`: `\\\%\_%`, "ü": "ü%",
	} {
		if got := (PrincipalFilter{Prefix: prefix}).Pattern(); got != want {
			t.Errorf("%q is matched as %q, want %q", prefix, got, want)
		}
	}
}

// A change sets only the bits that it names, and applying it twice equals applying it
// once.
func TestFlagChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := Flags(rapid.Uint32().Draw(t, "word"))
		c := FlagChange{Mask: Flags(rapid.Uint32().Draw(t, "mask")), Value: Flags(rapid.Uint32().Draw(t, "value"))}
		got := c.Apply(word)
		if (got^word)&^c.Mask != 0 || (got^c.Value)&c.Mask != 0 || c.Apply(got) != got {
			t.Fatalf("%+v makes %#x of %#x", c, uint32(got), uint32(word))
		}
	})
}

func TestOnlyGroupsCarryNoFlags(t *testing.T) {
	for _, typ := range PrincipalTypes {
		if typ.CarriesFlags() == (typ == GroupPrincipal) {
			t.Errorf("%s", typ)
		}
	}
}

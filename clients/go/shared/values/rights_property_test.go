package values

import (
	"testing"

	"pgregory.net/rapid"
)

// Widening adds only READ and WRITE, is idempotent, removes nothing, and is monotonic.
func TestWideningProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Rights(rapid.Uint32Range(0, uint32(AllRights)).Draw(t, "a"))
		b := Rights(rapid.Uint32Range(0, uint32(AllRights)).Draw(t, "b"))
		w := a.Widen()
		switch {
		case !w.Has(a):
			t.Fatalf("%v widened to %v lost something", a.Names(), w.Names())
		case w&^a&^(Read|Write) != 0:
			t.Fatalf("%v widened to %v gained more than READ and WRITE", a.Names(), w.Names())
		case w.Widen() != w:
			t.Fatalf("%v widened twice is %v", a.Names(), w.Widen().Names())
		case w.Has(Owner) && !w.Has(Write), w.Has(Write) && !w.Has(Read):
			t.Fatalf("%v is not wide", w.Names())
		case b.Has(a) && !b.Widen().Has(w):
			t.Fatalf("%v holds %v, but not once both are widened", b.Names(), a.Names())
		}
		named := Rights(0)
		for _, name := range a.Names() {
			r, ok := ParseRight(name)
			if !ok {
				t.Fatalf("%q is no name", name)
			}
			named |= r
		}
		if named != a {
			t.Fatalf("the names of %#x stand for %#x", uint32(a), uint32(named))
		}
	})
}

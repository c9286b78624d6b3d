package quota_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

func TestRefusals(t *testing.T) {
	q := quota.New[string](5, 3)
	for _, step := range []struct {
		holder string
		n      int64
		want   quota.Verdict
	}{
		{"a", 4, quota.FullEach},
		{"a", 3, quota.Taken},
		{"a", 1, quota.FullEach},
		{"b", 3, quota.FullAll},
		{"b", 2, quota.Taken},
		{"c", 1, quota.FullAll},
	} {
		if got := q.Take(step.holder, step.n); got != step.want {
			t.Fatalf("%s takes %d: %v, want %v", step.holder, step.n, got, step.want)
		}
	}
	q.Return("a", 3)
	if got := q.Take("c", 3); got != quota.Taken {
		t.Errorf("what was given back cannot be had: %v", got)
	}
	if q.Held() != 5 {
		t.Errorf("%d held", q.Held())
	}
}

// TestNeverMoreThanAllowed compares a Quota with the simplest implementation, a list.
func TestNeverMoreThanAllowed(t *testing.T) {
	type one struct {
		holder int
		n      int64
	}
	rapid.Check(t, func(t *rapid.T) {
		all, each := rapid.Int64Range(1, 20).Draw(t, "all"), rapid.Int64Range(1, 20).Draw(t, "each")
		q := quota.New[int](all, each)
		var held []one
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "return") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				q.Return(held[i].holder, held[i].n)
				held = append(held[:i], held[i+1:]...)
				continue
			}
			next := one{rapid.IntRange(0, 3).Draw(t, "holder"), rapid.Int64Range(1, 5).Draw(t, "n")}
			var sum, own int64
			for _, h := range held {
				sum += h.n
				if h.holder == next.holder {
					own += h.n
				}
			}
			want := sum+next.n <= all && own+next.n <= each
			if got := q.Take(next.holder, next.n) == quota.Taken; got != want {
				t.Fatalf("with %d held, %d by itself, taking %d: %v", sum, own, next.n, got)
			}
			if want {
				held = append(held, next)
			}
		}
	})
}

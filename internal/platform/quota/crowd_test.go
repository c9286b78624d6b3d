package quota_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

func TestCrowdEvictsTheOldestOfTheLargestHolder(t *testing.T) {
	var evicted []string
	c := quota.NewCrowd[string](4, 3, nil)
	join := func(holder, name string) (*quota.Member[string], quota.Verdict) {
		return c.Join(holder, func() { evicted = append(evicted, name) })
	}
	first, _ := join("a", "a1")
	join("a", "a2")
	join("a", "a3")
	if _, got := join("a", "a4"); got != quota.FullEach {
		t.Errorf("a fourth member of one holder: %v", got)
	}
	join("b", "b1")
	first.Keep()
	first.Keep()
	first.Expose() // Keep has been called once more than Expose
	if _, got := join("c", "c1"); got != quota.Taken || !slices.Equal(evicted, []string{"a2"}) {
		t.Fatalf("a newcomer: %v, evicted %v; want a2, because a1 is protected", got, evicted)
	}
	first.Expose() // first is now the youngest member of its holder
	if _, got := join("c", "c2"); got != quota.Taken || !slices.Equal(evicted, []string{"a2", "a3"}) {
		t.Errorf("the next one: %v, evicted %v", got, evicted)
	}
	first.Leave()
	first.Leave()
	if c.Held() != 3 {
		t.Errorf("%d members, want 3", c.Held())
	}
}

func TestCrowdWithoutVictim(t *testing.T) {
	c := quota.NewCrowd[int](1, 1, nil)
	m, _ := c.Join(1, func() { t.Error("a protected member was evicted") })
	m.Keep()
	if _, got := c.Join(2, nil); got != quota.FullAll {
		t.Errorf("joined: %v", got)
	}
}

// TestCrowdBounds checks that a new member joins if and only if its holder has less than its share, or if the share is
// equal to the limit for all. It may evict only the oldest member of the largest holder of the largest group.
func TestCrowdBounds(t *testing.T) {
	type one struct {
		id, holder int
		member     *quota.Member[int]
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.IntRange(1, 12).Draw(t, "all")
		each := rapid.IntRange(1, all).Draw(t, "each")
		c := quota.NewCrowd(all, each, func(holder int) int { return holder % 2 })
		var members []one
		evicted := -1 // the last evicted member
		for id := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(members) > 0 && rapid.IntRange(0, 2).Draw(t, "leave") == 0 {
				i := rapid.IntRange(0, len(members)-1).Draw(t, "which")
				members[i].member.Leave()
				members = slices.Delete(members, i, i+1)
				continue
			}
			count, group := map[int]int{}, map[int]int{}
			for _, m := range members {
				count[m.holder]++
				group[m.holder%2]++
			}
			victim := -1
			for i, m := range members { // oldest first
				if victim < 0 || cmp.Or(cmp.Compare(group[m.holder%2], group[members[victim].holder%2]), cmp.Compare(count[m.holder], count[members[victim].holder])) > 0 {
					victim = i
				}
			}
			holder := rapid.IntRange(0, 4).Draw(t, "holder")
			evicted = -1
			m, got := c.Join(holder, func() { evicted = id })
			if (got == quota.Taken) != (count[holder] < each || each == all) {
				t.Fatalf("holder %d has %d of %d: %v", holder, count[holder], each, got)
			}
			if got != quota.Taken {
				continue
			}
			if (evicted >= 0) != (len(members) == all) {
				t.Fatalf("with %d of %d members, member %d was evicted", len(members), all, evicted)
			}
			if evicted >= 0 {
				if members[victim].id != evicted {
					t.Fatalf("member %d was evicted of %v, want %d", evicted, members, members[victim].id)
				}
				members = slices.Delete(members, victim, victim+1)
			}
			members = append(members, one{id, holder, m})
			if c.Held() != int64(len(members)) {
				t.Fatalf("%d members, want %d", c.Held(), len(members))
			}
		}
	})
}

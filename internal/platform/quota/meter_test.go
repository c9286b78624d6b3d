package quota

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMeterForgets(t *testing.T) {
	now := time.Unix(0, 0)
	m := NewMeter[int](10, 10, func() time.Time { return now })
	for holder := range fewHolders {
		m.Count(holder, 1)
	}
	now = now.Add(time.Second)
	m.Count(fewHolders, 1)
	if len(m.holders) != 1 {
		t.Errorf("%d holders are remembered, want the last one", len(m.holders))
	}
}

// TestMeterBounds checks that a holder which waits as long as Wait says causes at most its burst and then its rate.
// Other holders do not affect it.
func TestMeterBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond, atOnce := rapid.IntRange(1, 100).Draw(t, "perSecond"), rapid.IntRange(1, 100).Draw(t, "atOnce")
		now := time.Unix(0, 0)
		m := NewMeter[string](float64(perSecond), atOnce, func() time.Time { return now })
		caused, most := 0, 0
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "pause")) * time.Millisecond)
			m.Count("other", atOnce)
			if m.Wait("one", 0) > 0 {
				continue
			}
			if bound := float64(atOnce) + float64(perSecond)*now.Sub(time.Unix(0, 0)).Seconds(); float64(caused) > bound+0.01 {
				t.Fatalf("%d after %s, without a debt", caused, now.Sub(time.Unix(0, 0)))
			}
			n := rapid.IntRange(1, atOnce).Draw(t, "n")
			m.Count("one", n)
			caused, most = caused+n, max(most, n)
		}
		if wait := m.Wait("one", 0); wait > time.Duration(float64(most)/float64(perSecond)*float64(time.Second))+time.Millisecond {
			t.Fatalf("the debt lasts %s, after %d at once", wait, most)
		}
		now = now.Add(m.Wait("one", 0) + time.Millisecond)
		if wait := m.Wait("one", 0); wait > 0 {
			t.Fatalf("the debt does not end: %s", wait)
		}
	})
}

package strangers

import (
	"slices"
	"testing"
	"time"
)

// rate sends n requests of somebody honest, one after the other. It returns how many were
// answered in a second, and how long the slowest hundredth took.
func (s *site) rate(t testing.TB, n int) (perSecond float64, p99 time.Duration) {
	t.Helper()
	took := make([]time.Duration, n)
	begun := time.Now()
	for i := range took {
		one := time.Now()
		s.works(t, 1)
		took[i] = time.Since(one)
	}
	slices.Sort(took)
	return float64(n) / time.Since(begun).Seconds(), took[n*99/100]
}

// keeps returns which part of its rate somebody honest keeps next to a disturbance. Other programs
// on the machine disturb both rates, so the best of a few rounds counts. A round that reaches the
// aim is the last one.
func (s *site) keeps(t *testing.T, aim float64, disturb func() (stop func())) (best float64) {
	t.Helper()
	const requests, rounds = 300, 5
	s.rate(t, requests) // warm
	for round := 0; round < rounds && best < aim; round++ {
		quiet, quiet99 := s.rate(t, requests)
		stop := disturb()
		beside, beside99 := s.rate(t, requests)
		stop()
		t.Logf("%.0f requests/s, %.0f beside: %.2f; p99 %v, %v", quiet, beside, beside/quiet, quiet99, beside99)
		best = max(best, beside/quiet)
	}
	return best
}

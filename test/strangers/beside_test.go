package strangers

import (
	"slices"
	"testing"
	"time"
)

// rate sends n requests of the honest client sequentially. It returns the requests per second and the 99th percentile
// of the response times.
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

// keeps returns the rate of the honest client during a disturbance, divided by its rate before. Other
// programs on the machine disturb both rates, so keeps returns the best of a few rounds. A round that
// reaches the aim is the last one.
func (s *site) keeps(t *testing.T, aim float64, disturb func() (stop func())) (best float64) {
	t.Helper()
	const requests, rounds = 300, 5
	s.rate(t, requests) // warm up
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

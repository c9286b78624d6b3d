package quota

import (
	"runtime/metrics"
	"time"
)

// Lag returns a function that returns how long goroutines of the process waited for a core, on average since the last
// call of that function. The Go runtime measures every eighth wait (runtime/metrics, /sched/latencies:seconds). The
// function must not be called concurrently.
func Lag() func() time.Duration {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	var before []uint64
	return func() time.Duration {
		metrics.Read(sample)
		h := sample[0].Value.Float64Histogram()
		mean := meanSince(h, before)
		before = append(before[:0], h.Counts...)
		return mean
	}
}

// meanSince returns the mean of the waits in a histogram, without the waits in before. The histogram is in seconds.
// Every wait counts as the lower bound of its bucket.
func meanSince(h *metrics.Float64Histogram, before []uint64) time.Duration {
	waits, seconds := uint64(0), 0.0
	for i, n := range h.Counts {
		if before != nil {
			n -= before[i]
		}
		waits += n
		seconds += float64(n) * max(h.Buckets[i], 0) // the lower bound of the first bucket is minus infinity
	}
	if waits == 0 {
		return 0
	}
	return time.Duration(seconds / float64(waits) * float64(time.Second))
}

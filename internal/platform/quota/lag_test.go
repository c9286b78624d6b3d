package quota

import (
	"math"
	"runtime/metrics"
	"testing"
	"time"
)

func TestMeanSince(t *testing.T) {
	h := &metrics.Float64Histogram{Buckets: []float64{math.Inf(-1), 0, 0.001, 0.003, math.Inf(1)}, Counts: []uint64{0, 5, 6, 7}}
	for _, c := range []struct {
		before []uint64
		want   time.Duration
	}{
		{nil, 1500 * time.Microsecond},
		{[]uint64{0, 5, 5, 6}, 2 * time.Millisecond},
		{[]uint64{0, 5, 6, 7}, 0},
	} {
		if got := meanSince(h, c.before); got != c.want {
			t.Errorf("after %v the mean is %v, want %v", c.before, got, c.want)
		}
	}
	lag := Lag()
	if lag(); lag() > time.Minute {
		t.Error("the runtime does not measure in seconds")
	}
}

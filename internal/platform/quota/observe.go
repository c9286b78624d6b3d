package quota

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Tally counts refusals by the limit that was reached. The zero value is ready for use. It is safe for concurrent use.
type Tally struct{ each, all atomic.Uint64 }

// Count counts a refusal by its verdict and returns the verdict.
func (t *Tally) Count(v Verdict) Verdict {
	switch v {
	case Taken:
	case FullEach:
		t.each.Add(1)
	case FullAll:
		t.all.Add(1)
	}
	return v
}

// Collectors returns the metrics of a limit: the number of refusals, and the usage of the largest holder. largest
// returns that usage divided by the share of a holder. If largest is nil, the usage has no metric.
func (t *Tally) Collectors(ceiling string, largest func() float64) []prometheus.Collector {
	count := func(bound string, n *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "keyserver_ceiling_refusals_total",
			Help:        "Requests, connections or bytes that were refused because the principal or address used its share, or because the ceiling was reached.",
			ConstLabels: prometheus.Labels{"ceiling": ceiling, "bound": bound},
		}, func() float64 { return float64(n.Load()) })
	}
	shown := []prometheus.Collector{count("share", &t.each), count("ceiling", &t.all)}
	if largest == nil {
		return shown
	}
	return append(shown, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "keyserver_ceiling_largest_share_ratio",
		Help:        "Usage of a ceiling by its largest user (principal or address), divided by the share of one user.",
		ConstLabels: prometheus.Labels{"ceiling": ceiling},
	}, largest))
}

// Collectors returns the metrics of the quota (see Tally.Collectors).
func (q *Quota[K]) Collectors(ceiling string) []prometheus.Collector {
	return q.tally.Collectors(ceiling, q.largest)
}

func (q *Quota[K]) largest() float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := int64(0)
	for _, n := range q.held {
		most = max(most, n)
	}
	return float64(most) / float64(q.each)
}

// Collectors returns the metrics of the crowd (see Tally.Collectors). An eviction counts as a refusal by the limit of
// all holders.
func (c *Crowd[K]) Collectors(ceiling string) []prometheus.Collector {
	return c.tally.Collectors(ceiling, c.largest)
}

func (c *Crowd[K]) largest() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := 0
	for _, h := range c.holders {
		most = max(most, h.held)
	}
	return float64(most) / float64(c.each)
}

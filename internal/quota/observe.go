package quota

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Tally counts what a bound refuses. It is safe for concurrent use.
type Tally struct{ each, all atomic.Uint64 }

// Count counts a verdict.
func (t *Tally) Count(v Verdict) {
	switch v {
	case Taken:
	case FullEach:
		t.each.Add(1)
	case FullAll:
		t.all.Add(1)
	}
}

// Collectors shows how full the shares of a ceiling are and how often it refused. largest
// returns what the holder with most has, as a part of its share; without it there is no gauge.
func (t *Tally) Collectors(ceiling string, largest func() float64) []prometheus.Collector {
	count := func(bound string, n *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "keyserver_ceiling_refusals_total",
			Help:        "What found no room: because its principal or address had its share, or because the ceiling was reached.",
			ConstLabels: prometheus.Labels{"ceiling": ceiling, "bound": bound},
		}, func() float64 { return float64(n.Load()) })
	}
	shown := []prometheus.Collector{count("share", &t.each), count("ceiling", &t.all)}
	if largest == nil {
		return shown
	}
	return append(shown, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "keyserver_ceiling_largest_share_ratio",
		Help:        "What the principal or address with most of a ceiling has, as a part of what it may have.",
		ConstLabels: prometheus.Labels{"ceiling": ceiling},
	}, largest))
}

// Collectors shows the quota to Prometheus.
func (q *Quota[K]) Collectors(ceiling string) []prometheus.Collector {
	return q.tally.Collectors(ceiling, q.largest)
}

// largest returns what the holder with most has, as a part of its share.
func (q *Quota[K]) largest() float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := int64(0)
	for _, n := range q.held {
		most = max(most, n)
	}
	return float64(most) / float64(q.each)
}

// Collectors shows the crowd to Prometheus. A newcomer that evicts a member has met the ceiling.
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

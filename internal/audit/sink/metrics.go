package sink

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of all sinks of a process.
type Metrics struct {
	registry       prometheus.Registerer
	sent, failures *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	label := []string{"sink"}
	m := &Metrics{
		registry: registry,
		sent:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keyserver_audit_sink_sent_total", Help: "Rows of the audit log that an audit sink has acknowledged to this process."}, label),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keyserver_audit_sink_failures_total", Help: "Batches that an audit sink has not acknowledged, or that could not be created."}, label),
	}
	registry.MustRegister(m.sent, m.failures)
	return m
}

type meter struct {
	sent, failures prometheus.Counter
	*position
}

// position is the progress of a sink while this process delivers to it.
type position struct {
	sent, oldest atomic.Int64 // oldest is the time of the first row after sent; 0 is unknown
	held         atomic.Bool
	size         func() int64
	clock        func() time.Time
}

func (m *Metrics) of(target string, c Config) meter {
	p := &position{size: c.Size, clock: c.Clock}
	label := prometheus.Labels{"sink": target}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_sink_lag_rows", ConstLabels: label,
			Help: "Rows under a checkpoint that an audit sink has not acknowledged; 0 in a process that does not deliver to it.",
		}, func() float64 { return float64(p.rows()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_sink_lag_seconds", ConstLabels: label,
			Help: "Age of the oldest row under a checkpoint that an audit sink has not acknowledged.",
		}, p.seconds),
	)
	return meter{m.sent.WithLabelValues(target), m.failures.WithLabelValues(target), p}
}

func (p *position) moved(sent int64, held bool) {
	if p.sent.Swap(sent) != sent {
		p.oldest.Store(0)
	}
	p.held.Store(held)
}

// waits stores the time of the oldest unacknowledged row.
func (p *position) waits(since time.Time) { p.oldest.Store(since.UnixMicro()) }

func (p *position) rows() int64 {
	if !p.held.Load() {
		return 0
	}
	return max(p.size()-p.sent.Load(), 0)
}

func (p *position) seconds() float64 {
	oldest := p.oldest.Load()
	if oldest == 0 || p.rows() == 0 {
		return 0
	}
	return max(p.clock().Sub(time.UnixMicro(oldest)), 0).Seconds()
}

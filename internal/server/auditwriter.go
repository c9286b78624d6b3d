package server

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// commitBuckets are the histogram buckets of commit times in seconds. They range from a journal on a fast disk to a
// database that hangs.
var commitBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

type auditMetrics struct {
	rows     map[keyserver.Outcome]prometheus.Counter
	all      *prometheus.CounterVec
	commits  prometheus.Histogram
	failures prometheus.Counter
	newest   atomic.Int64 // sequence number of the newest row that this process has written
}

func newAuditMetrics() *auditMetrics {
	m := &auditMetrics{
		rows: map[keyserver.Outcome]prometheus.Counter{},
		all: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_audit_rows_total", Help: "Rows of the audit log that this process has written, by outcome.",
		}, []string{"outcome"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "keyserver_audit_commit_duration_seconds", Help: "Time to make a group of audit rows durable.", Buckets: commitBuckets,
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keyserver_audit_commit_failures_total", Help: "Failed commits of audit rows; their operations were refused.",
		}),
	}
	for _, o := range []keyserver.Outcome{keyserver.Allowed, keyserver.Refused, keyserver.Failed} {
		m.rows[o] = m.all.WithLabelValues(string(o))
	}
	return m
}

// measured implements audit.Options.Measured: it records one commit. It is never called concurrently.
func (m *auditMetrics) measured(rows []keyserver.AuditEntry, took time.Duration, err error) {
	m.commits.Observe(took.Seconds())
	if err != nil {
		m.failures.Inc()
		return
	}
	for i := range rows {
		if of, ok := m.rows[rows[i].Outcome]; ok {
			of.Inc()
		}
	}
	if n := len(rows); n > 0 {
		m.newest.Store(rows[n-1].Seq)
	}
}

func (m *auditMetrics) observe(r prometheus.Registerer, w *audit.Writer, t *tree.Tree) {
	r.MustRegister(m.all, m.commits, m.failures,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_queue_rows", Help: "Operations that wait until their audit rows are durable, without those in a commit.",
		}, func() float64 { now, _ := w.Waiting(); return float64(now) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_queue_max_rows", Help: "Maximum of operations that wait for their audit rows; further ones are refused with OVERLOADED.",
		}, func() float64 { _, most := w.Waiting(); return float64(most) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_tree_lag_rows", Help: "Audit rows that this process has written and that are not yet under a signed checkpoint, as known to it.",
		}, func() float64 { return float64(max(m.newest.Load()-t.Size(), 0)) }),
	)
}

package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// metrics have only label values from fixed tables, so that workloads and key servers cannot add others.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	batches  prometheus.Histogram
}

func newMetrics(into prometheus.Registerer, a *Agent) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_agent_requests_total",
			Help: "Requests of the workload by route and code; the code of success is OK.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "keyserver_agent_request_duration_seconds",
			Help:    "Time from the header of a request to the end of its response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60},
		}, []string{"route"}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "keyserver_agent_batch_items",
			Help:    "Number of requests of the workload in each batch.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
	}
	into.MustRegister(m.requests, m.duration, m.batches,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_agent_requests_in_flight", Help: "Requests in progress."},
			func() float64 { return float64(len(a.places)) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "keyserver_agent_logins_total", Help: "Attempted logins."},
			func() float64 { return float64(a.token.logins.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_agent_ready", Help: "1 if the key server accepted the agent's session in the last check, otherwise 0."},
			func() float64 {
				if a.gate.ready() != nil {
					return 0
				}
				return 1
			}),
	)
	return m
}

// noRoute is the label value for all unknown paths.
const noRoute = "none"

func (m *metrics) observe(route, code string, took time.Duration) {
	m.requests.WithLabelValues(route, known(code)).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}

// known returns the code if it is in a table, and otherwise OTHER.
func known(code string) string {
	if code == "" {
		return "OK"
	}
	if routes.Status(fault.Code(code)) != 0 {
		return code
	}
	for _, c := range Codes {
		if c.Code == code {
			return code
		}
	}
	return "OTHER"
}

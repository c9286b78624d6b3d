package kmsplugin

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/keyserver-operator/keyserver-operator/internal/server/listener"
)

type metrics struct {
	calls      *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	generation prometheus.Gauge
	accepts    *listener.Accepts
}

func newMetrics(logger *slog.Logger) *metrics {
	return &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_kms_calls_total", Help: "Calls of the KMS v2 API, by method and by the gRPC code of the response.",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "keyserver_kms_call_seconds", Help: "Duration of calls of the KMS v2 API; kube-apiserver waits 3 s by default.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 3, 5, 10},
		}, []string{"method"}),
		generation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "keyserver_kms_key_generation", Help: "Generation of the key that encrypted last, from 1; 0 before the first encryption.",
		}),
		accepts: listener.NewAccepts("keyserver_kms_accept_failures_total", logger),
	}
}

// registry returns a registry with these metrics and those of the process.
func (m *metrics) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(m.calls, m.seconds, m.generation, m.accepts, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

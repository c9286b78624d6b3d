package controllers

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	objectsByState = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "keyserver_objects",
		Help: "Objects by kind and by the reason of their Ready condition.",
	}, []string{"kind", "reason"})

	timeToVerified = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "keyserver_time_to_verified_seconds",
		Help:    "Time from an object becoming unready, or being created, to its being verified.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
	}, []string{"kind"})

	driftFound = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keyserver_drift_found_total",
		Help: "Objects found to differ from the key server after they had been verified.",
	}, []string{"kind"})

	driftRepaired = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keyserver_drift_repaired_total",
		Help: "Such differences corrected and verified.",
	}, []string{"kind"})

	apiRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keyserver_api_requests_total",
		Help: "Calls to a key server's /api by KeyServer, call and code (OK, or the code of the refusal).",
	}, []string{"keyserver", "call", "code"})
)

func init() {
	metrics.Registry.MustRegister(objectsByState, timeToVerified, driftFound, driftRepaired, apiRequests)
}

// requestsOf returns the request counter of one KeyServer, by call and code.
func requestsOf(keyServer string) *prometheus.CounterVec {
	return apiRequests.MustCurryWith(prometheus.Labels{"keyserver": keyServer})
}

// population counts the objects of one kind by state.
type population struct {
	kind string
	mu   sync.Mutex
	at   map[types.NamespacedName]string
}

func newPopulation(kind string) *population {
	return &population{kind: kind, at: map[types.NamespacedName]string{}}
}

// move records an object's state. An empty state means that it is gone.
func (p *population) move(object types.NamespacedName, state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.at[object]
	if was == state {
		return
	}
	if was != "" {
		objectsByState.WithLabelValues(p.kind, was).Dec()
		delete(p.at, object)
	}
	if state != "" {
		objectsByState.WithLabelValues(p.kind, state).Inc()
		p.at[object] = state
	}
}

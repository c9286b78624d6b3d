package status

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

	// TimeToVerified measures how long objects took to be verified, in seconds.
	TimeToVerified = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "keyserver_time_to_verified_seconds",
		Help:    "Time from the creation of an object, or from its loss of Ready, to its verification.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
	}, []string{"kind"})

	// DriftFound counts outside changes that the manager has found.
	DriftFound = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keyserver_drift_found_total",
		Help: "Outside changes found: verified objects that no longer agreed with the key server.",
	}, []string{"kind"})

	// DriftRepaired counts outside changes that the manager has corrected.
	DriftRepaired = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keyserver_drift_repaired_total",
		Help: "Outside changes that were corrected and verified.",
	}, []string{"kind"})
)

func init() {
	metrics.Registry.MustRegister(objectsByState, TimeToVerified, DriftFound, DriftRepaired)
}

// BeginAtZero creates the metrics of a kind with the value 0. Prometheus cannot see the first increase of a metric that
// starts at 1.
func BeginAtZero(kind string) {
	TimeToVerified.WithLabelValues(kind)
	DriftFound.WithLabelValues(kind)
	DriftRepaired.WithLabelValues(kind)
}

// Population counts the objects of one kind by their state.
type Population struct {
	kind string
	mu   sync.Mutex
	at   map[types.NamespacedName]string
}

// NewPopulation returns a Population without objects.
func NewPopulation(kind string) *Population {
	return &Population{kind: kind, at: map[types.NamespacedName]string{}}
}

// Differs reports whether an object has a recorded state that is not state.
func (p *Population) Differs(object types.NamespacedName, state string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	is, known := p.at[object]
	return known && is != state
}

// Move records the state of an object. An empty state removes the object.
func (p *Population) Move(object types.NamespacedName, state string) {
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

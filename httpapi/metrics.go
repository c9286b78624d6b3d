package httpapi

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// metrics contains the metrics of the API. Label values come from fixed tables of routes, codes and methods, never from
// a client.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(into prometheus.Registerer, held *places) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_http_requests_total",
			Help: "Requests by route, method and code; the code of success is OK.",
		}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "keyserver_http_request_duration_seconds",
			Help:    "Time from the header of the request to the end of its response.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60},
		}, []string{"route", "method"}),
	}
	if into == nil {
		return m, nil
	}
	for _, c := range append(held.gauges(), m.requests, m.duration) {
		if err := into.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the API: %w", err)
		}
	}
	return m, nil
}

// measured contains the metrics of one route. It keeps the metrics of successful requests, because a lookup by labels
// costs more than counting.
type measured struct {
	all     *metrics
	route   string
	success func() series
}

type series struct {
	count    prometheus.Counter
	duration prometheus.Observer
}

func (m *metrics) of(r routes.Route) *measured {
	one := &measured{all: m, route: r.Path}
	one.success = sync.OnceValue(func() series { return one.series(method(r.Method), "OK") })
	return one
}

func (m *measured) series(method, code string) series {
	return series{
		count:    m.all.requests.WithLabelValues(m.route, method, code),
		duration: m.all.duration.WithLabelValues(m.route, method),
	}
}

func (m *measured) observe(method string, code fault.Code, took time.Duration) {
	var s series
	if code == "" {
		s = m.success()
	} else {
		s = m.series(method, string(code))
	}
	s.count.Inc()
	s.duration.Observe(took.Seconds())
}

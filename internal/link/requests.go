package link

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var apiRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "keyserver_api_requests_total",
	Help: "Calls to a key server's /api by KeyServer, call and code (OK, or the code of the refusal).",
}, []string{"keyserver", "call", "code"})

func init() { metrics.Registry.MustRegister(apiRequests) }

// requestsOf returns the request counter of one KeyServer, by call and code.
func requestsOf(keyServer string) *prometheus.CounterVec {
	return apiRequests.MustCurryWith(prometheus.Labels{"keyserver": keyServer})
}

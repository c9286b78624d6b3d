package connection

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

var apiRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "keyserver_api_requests_total",
	Help: "Calls to a key server's /api by KeyServer, call (the operationId) and code (OK, or the error code).",
}, []string{"keyserver", "call", "code"})

func init() { metrics.Registry.MustRegister(apiRequests) }

// counting returns a function that counts the calls to one KeyServer.
func counting(keyServer string) func(route string, err error) {
	requests := apiRequests.MustCurryWith(prometheus.Labels{"keyserver": keyServer})
	return func(route string, err error) { requests.WithLabelValues(route, codeLabel(err)).Inc() }
}

func codeUnless(err error) string {
	if err == nil {
		return ""
	}
	return codeLabel(err)
}

// codeLabel returns the metric label of an error. The number of different labels is limited, because all codes are in a
// catalogue.
func codeLabel(err error) string {
	switch {
	case err == nil:
		return "OK"
	case client.CodeOf(err) != "":
		return client.CodeOf(err)
	case client.IsUnavailable(err):
		return "UNAVAILABLE"
	default:
		return "OTHER"
	}
}

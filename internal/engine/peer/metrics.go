package peer

import (
	"path"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Metrics measures calls to peers and calls from peers. The labels are the system ids of registered peers, methods and
// codes.
type Metrics struct {
	asked, answered *prometheus.CounterVec
	took            *prometheus.HistogramVec
}

// callBuckets are the histogram buckets for the duration of calls to peers, in seconds.
var callBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60}

// NewMetrics returns metrics that are registered with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_peer_calls_total", Help: "Calls to peers by system id, method and code: OK, the code of the refusal, or the gRPC code if there is no refusal. Each attempt counts.",
		}, []string{"peer", "method", "code"}),
		answered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_peer_requests_total", Help: "Calls from peers by system id, method and code: OK, or the code of the refusal.",
		}, []string{"peer", "method", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "keyserver_peer_call_duration_seconds", Help: "Duration of calls to peers, including calls without a response.", Buckets: callBuckets,
		}, []string{"peer"}),
	}
	r.MustRegister(m.asked, m.answered, m.took)
	return m
}

// call records one attempt to call a peer.
func (m *Metrics) call(to keyserver.SystemID, method string, err error, took time.Duration) {
	if m == nil {
		return
	}
	peer := strconv.FormatUint(uint64(to), 10)
	m.asked.WithLabelValues(peer, path.Base(method), codeOf(err)).Inc()
	m.took.WithLabelValues(peer).Observe(took.Seconds())
}

// request counts a call from a peer.
func (m *Metrics) request(from keyserver.SystemID, method string, err error) {
	if m == nil {
		return
	}
	m.answered.WithLabelValues(strconv.FormatUint(uint64(from), 10), path.Base(method), codeOf(err)).Inc()
}

func codeOf(err error) string {
	if err == nil {
		return "OK"
	}
	if r := refusalIn(err); r != nil {
		code := fault.Code(r.GetCode())
		switch {
		case passedOn[code]:
			return r.GetCode()
		case r.GetRetryable():
			return string(fault.PeerUnavailable)
		default: // do not use other codes as labels: the other side can send any code
			return string(fault.OpFailed)
		}
	}
	return status.Code(err).String()
}

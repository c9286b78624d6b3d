package session

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// meter counts logins and proofs. Its labels are methods and error codes from fixed tables, so clients cannot create
// new label values.
type meter struct {
	logins, proofs *prometheus.CounterVec
	goodProofs     prometheus.Counter
	sessions       quota.Tally // sessions that were refused because of a limit
}

// succeeded is the outcome label of successful logins and proofs.
const succeeded = "OK"

func newMeter() *meter {
	m := &meter{
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_logins_total", Help: "Logins by method and outcome: OK, or the code of the refusal.",
		}, []string{"method", "outcome"}),
		proofs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_proofs_total", Help: "DPoP proofs that were sent, or required and missing, by outcome: OK, or the code of the refusal.",
		}, []string{"outcome"}),
	}
	m.goodProofs = m.proofs.WithLabelValues(succeeded)
	return m
}

func (m *meter) observe(r prometheus.Registerer, memory *proofCache) {
	if r == nil {
		return
	}
	r.MustRegister(append(m.sessions.Collectors("sessions", nil), m.logins, m.proofs, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "keyserver_proofs_remembered", Help: "Used DPoP proofs that the process remembers (--max-proofs).",
	}, func() float64 { return float64(memory.size()) }))...)
}

// login counts a completed login. The caller has checked that the login method exists.
func (m *meter) login(method keyserver.SessionKind, err error) {
	m.logins.WithLabelValues(string(method), outcome(err)).Inc()
}

func (m *meter) proof(err error) {
	if err == nil {
		m.goodProofs.Inc()
		return
	}
	m.proofs.WithLabelValues(outcome(err)).Inc()
}

func outcome(err error) string {
	if err == nil {
		return succeeded
	}
	if code := fault.CodeOf(err); code != "" {
		return string(code)
	}
	return string(fault.OpFailed)
}

package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// alarmEvery is the minimum time between two alarms for the same row.
	alarmEvery = time.Minute
	// maxAlarms is the maximum number of rows whose last alarm is remembered. It is also the maximum number of alarms
	// that wait for their audit row. Further rejected rows are only counted.
	maxAlarms = 256
)

// Table names in alarms about objects without a row MAC.
const (
	tableAuditTree    = "audit_tree"
	tableAuditArchive = "audit_archive"
)

// tamperAlarm reports rejected rows of the database in the log, in a metric and in an audit row. Each database row is
// reported at most once per alarmEvery. A separate goroutine writes the audit rows, because a rejected row may be found
// while a transaction writes to the database.
type tamperAlarm struct {
	cfg    Config
	system keyserver.SystemID           // set before audit rows are written
	rows   atomic.Pointer[audit.Writer] // nil until the audit writer is open

	limiter *reportLimiter // by table and row
	waiting chan rowmac.Finding
	refused *prometheus.CounterVec
}

func newTamperAlarm(cfg Config) *tamperAlarm {
	a := &tamperAlarm{
		cfg: cfg, limiter: newReportLimiter(alarmEvery), waiting: make(chan rowmac.Finding, maxAlarms),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_store_tampered_total", Help: "Reads that were refused because the key server did not write the row.",
		}, []string{"table"}),
	}
	a.refused.WithLabelValues(tableAuditTree)
	a.refused.WithLabelValues(tableAuditArchive)
	for name, table := range rowmac.Tables {
		if table.In == "" {
			a.refused.WithLabelValues(name) // creates the series before the first alarm
		}
	}
	return a
}

func (a *tamperAlarm) observe(r prometheus.Registerer) { r.MustRegister(a.refused) }

// raise reports one rejected row. It does not block and does not use the store.
func (a *tamperAlarm) raise(f rowmac.Finding) {
	a.refused.WithLabelValues(f.Table).Inc()
	if !a.limiter.due(f.Table+" "+f.ID, a.cfg.Clock()) {
		return
	}
	a.cfg.Logger.Error("refused a database row that this key server did not write; run doctor, and see docs/security.md",
		"table", f.Table, "id", f.ID, "problem", f.Problem)
	select {
	case a.waiting <- f:
	default:
	}
}

// reportLimiter limits how often an event is reported.
type reportLimiter struct {
	every      time.Duration
	mu         sync.Mutex
	reportedAt map[string]time.Time
}

func newReportLimiter(every time.Duration) *reportLimiter {
	return &reportLimiter{every: every, reportedAt: map[string]time.Time{}}
}

// due reports whether the event with the name what must be reported now. If so, it stores the time.
func (q *reportLimiter) due(what string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if last, ok := q.reportedAt[what]; ok && now.Sub(last) < q.every {
		return false
	}
	if len(q.reportedAt) >= maxAlarms {
		for what, last := range q.reportedAt {
			if now.Sub(last) >= q.every {
				delete(q.reportedAt, what)
			}
		}
	}
	if len(q.reportedAt) >= maxAlarms {
		return false
	}
	q.reportedAt[what] = now
	return true
}

func (a *tamperAlarm) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-a.waiting:
			a.write(ctx, f)
		}
	}
}

// write writes the audit row. The row has no principal, because it is unknown who changed the database row. If the
// write fails, the error is only logged.
func (a *tamperAlarm) write(ctx context.Context, f rowmac.Finding) {
	err := a.rows.Load().Write(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditTampered, Outcome: keyserver.Refused, Reason: string(fault.ReasonStoreTampered),
		Kind: keyserver.InternalSession, Principal: keyserver.PrincipalRef{System: a.system}, Object: f.Table + " " + f.ID,
	})
	if err != nil {
		a.cfg.Logger.Error("cannot write the audit row of a tampered row", "table", f.Table, "id", f.ID, "error", err)
	}
}

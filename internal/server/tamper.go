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
	// alarmEvery is how long repeated alarms for the same row are suppressed.
	alarmEvery = time.Minute
	// maxAlarms bounds the rows that are remembered, and the rows that wait for their audit row. Rows beyond
	// the limit are only counted.
	maxAlarms = 256
)

// Tables of alarms about objects without a MAC.
const (
	tableAuditTree    = "audit_tree"
	tableAuditArchive = "audit_archive"
)

// tamperAlarm reports rejected rows of the database: in the log, in a metric, and in an audit row. Each
// database row is reported once a minute. It writes audit rows in a separate goroutine, because rows are read
// while the database is being written.
type tamperAlarm struct {
	cfg    Config
	system keyserver.SystemID           // set before audit rows are written
	rows   atomic.Pointer[audit.Writer] // nil until the audit log is open

	limiter *reportLimiter // by row
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
			a.refused.WithLabelValues(name) // so that the series exists before the first alarm
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

// reportLimiter remembers the recent reports.
type reportLimiter struct {
	every      time.Duration
	mu         sync.Mutex
	reportedAt map[string]time.Time
}

func newReportLimiter(every time.Duration) *reportLimiter {
	return &reportLimiter{every: every, reportedAt: map[string]time.Time{}}
}

// due reports whether the event named what must be reported now. If so, it records the time.
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

// run writes the waiting audit rows until ctx ends.
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

// write writes the audit row without a principal, because the author of the change is unknown. If it cannot
// write the row, it logs that.
func (a *tamperAlarm) write(ctx context.Context, f rowmac.Finding) {
	err := a.rows.Load().Write(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditTampered, Outcome: keyserver.Refused, Reason: string(fault.ReasonStoreTampered),
		Kind: keyserver.InternalSession, Principal: keyserver.PrincipalRef{System: a.system}, Object: f.Table + " " + f.ID,
	})
	if err != nil {
		a.cfg.Logger.Error("cannot write the audit row of a tampered row", "table", f.Table, "id", f.ID, "error", err)
	}
}

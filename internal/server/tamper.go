package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/rowmac"
)

const (
	// alarmEvery is how long nothing more is said of a row that is refused again.
	alarmEvery = time.Minute
	// maxAlarms bounds the rows that are remembered, and those that wait for their
	// line of the audit trail. Beyond, they are counted alone.
	maxAlarms = 256
)

// tableAuditTree is what an alarm names that no MAC is about.
const tableAuditTree = "audit_tree"

// tamperAlarm tells of rows of the database that were refused: in the log, in a
// metric, and in a row of the audit trail, once a minute for each. It has its own
// turn to write, because rows are read while the database is being written.
type tamperAlarm struct {
	cfg    Config
	system keyserver.SystemID           // known once there are rows
	rows   atomic.Pointer[audit.Writer] // nil until the trail is open

	mu      sync.Mutex
	told    map[string]time.Time // by row
	waiting chan rowmac.Finding
	refused *prometheus.CounterVec
}

func newTamperAlarm(cfg Config) *tamperAlarm {
	a := &tamperAlarm{
		cfg: cfg, told: map[string]time.Time{}, waiting: make(chan rowmac.Finding, maxAlarms),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_store_tampered_total", Help: "Reads of rows that were refused because the key server has not written them.",
		}, []string{"table"}),
	}
	a.refused.WithLabelValues(tableAuditTree)
	for name, table := range rowmac.Tables {
		if table.In == "" {
			a.refused.WithLabelValues(name) // so that an alert finds it before it counts anything
		}
	}
	return a
}

func (a *tamperAlarm) observe(r prometheus.Registerer) { r.MustRegister(a.refused) }

// raise is told of each row that is refused. It neither waits nor uses the store.
func (a *tamperAlarm) raise(f rowmac.Finding) {
	a.refused.WithLabelValues(f.Table).Inc()
	if !a.due(f, a.cfg.Clock()) {
		return
	}
	a.cfg.Logger.Error("a row of the database was not written by this key server and is refused; run doctor, and see docs/security.md",
		"table", f.Table, "id", f.ID, "problem", f.Problem)
	select {
	case a.waiting <- f:
	default:
	}
}

func (a *tamperAlarm) due(f rowmac.Finding, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	row := f.Table + " " + f.ID
	if last, ok := a.told[row]; ok && now.Sub(last) < alarmEvery {
		return false
	}
	if len(a.told) >= maxAlarms {
		for row, last := range a.told {
			if now.Sub(last) >= alarmEvery {
				delete(a.told, row)
			}
		}
	}
	if len(a.told) >= maxAlarms {
		return false
	}
	a.told[row] = now
	return true
}

// run writes what waits until ctx ends.
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

// write leaves the principal out: nobody is known to have done it. A row that
// cannot be written is in the log.
func (a *tamperAlarm) write(ctx context.Context, f rowmac.Finding) {
	err := a.rows.Load().Write(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditTampered, Outcome: keyserver.Refused, Reason: string(fault.ReasonStoreTampered),
		Kind: keyserver.InternalSession, Principal: keyserver.PrincipalRef{System: a.system}, Object: f.Table + " " + f.ID,
	})
	if err != nil {
		a.cfg.Logger.Error("the audit row of a tampered row could not be written", "table", f.Table, "id", f.ID, "error", err)
	}
}

package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/monotonic"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// maxUnreported is the maximum number of clock steps that wait for their audit rows.
const maxUnreported = 100

// clockWatch reports steps of the machine's clock, that is, changes larger than monotonic.Tolerance. The clock of the
// process does not follow a step, except a step ahead to the time of the PostgreSQL server.
type clockWatch struct {
	clock      *monotonic.Clock
	store      *sqlstore.Store
	system     keyserver.SystemID
	rows       *audit.Writer
	logger     *slog.Logger
	steps      prometheus.Counter
	unreported []string // values of the field Object for the audit rows that are not written yet
}

// watchClock sets the clock of the process from the database. It returns nil if the process uses no monotonic clock.
// With PostgreSQL, the process uses the time of the database server. With an embedded database, the time is not earlier
// than the newest row of the database; otherwise expired sessions would be valid again. A row that is more than
// monotonic.MostAhead later than the machine's clock is ignored.
func (s *Server) watchClock(ctx context.Context) (*clockWatch, error) {
	if s.cfg.Steady == nil {
		return nil, nil
	}
	w := &clockWatch{clock: s.cfg.Steady, store: s.store, logger: s.cfg.Logger, steps: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "keyserver_clock_steps_total", Help: "Times that the machine's clock was set while this process ran, or was wrong at its start.",
	})}
	at, err := s.store.Time(ctx)
	if err != nil || at.IsZero() {
		return w, err
	}
	if ahead := at.Sub(w.clock.Now()); !s.store.Shared() && ahead > monotonic.MostAhead {
		w.logger.Error("the newest audit row is more than a day later than the machine's clock, and this process uses the machine's clock: "+
			"expired sessions may be valid again, so end them; see docs/guides/clock.md", "row", at, "ahead", ahead.String())
		w.note(monotonic.Step{By: -ahead})
	}
	if step, moved := w.clock.Begin(at, !s.store.Shared()); moved {
		w.logger.Warn("the machine's clock differs from the time of the database, and this process uses the time of the database; see docs/guides/clock.md",
			"ahead", step.Away.String(), "database", at)
		w.note(step)
	}
	return w, nil
}

// begin writes audit rows for the steps that watchClock found, and starts the periodic check.
func (w *clockWatch) begin(ctx context.Context, s *Server) {
	if w == nil {
		return
	}
	w.rows, w.system = s.rows, s.system
	s.registry.MustRegister(w.steps, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "keyserver_clock_away_seconds", Help: "Seconds that the machine's clock is ahead of the time that this process uses; 0 unless the process did not follow a step.",
	}, func() float64 { return w.clock.Away().Seconds() }))
	w.writeAll(ctx)
	s.background(func(ctx context.Context) { each(ctx, monotonic.Every, func() { w.look(ctx) }) })
}

func (w *clockWatch) look(ctx context.Context) {
	if step, stepped := w.clock.Look(); stepped {
		if step.Away > 0 && w.agrees(ctx) {
			w.clock.Follow()
			step.Away = w.clock.Away()
		}
		w.logger.Warn("the machine's clock was set; see docs/guides/clock.md", "by", step.By.String(), "followed", step.Away == 0, "ahead", step.Away.String())
		w.note(step)
	}
	w.writeAll(ctx)
}

// writeAll writes the waiting audit rows in order. It stops at the first error.
func (w *clockWatch) writeAll(ctx context.Context) {
	for len(w.unreported) > 0 && w.write(ctx, w.unreported[0]) == nil {
		w.unreported = w.unreported[1:]
	}
}

// agrees reports whether the machine's clock agrees with the clock of the PostgreSQL server. It returns false for an
// embedded database, which has no separate clock.
func (w *clockWatch) agrees(ctx context.Context) bool {
	if !w.store.Shared() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	at, err := w.store.Time(ctx)
	return err == nil && at.Sub(w.clock.Now().Add(w.clock.Away())).Abs() <= monotonic.Tolerance
}

func (w *clockWatch) note(step monotonic.Step) {
	w.steps.Inc()
	object := step.By.Round(time.Millisecond).String()
	if step.By > 0 {
		object = "+" + object
	}
	if len(w.unreported) < maxUnreported { // when the list is full, further steps are only logged and counted
		w.unreported = append(w.unreported, object)
	}
}

func (w *clockWatch) write(ctx context.Context, object string) error {
	return w.rows.Write(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditClock, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession,
		Principal: keyserver.PrincipalRef{System: w.system}, Object: object,
	})
}

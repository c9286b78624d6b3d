package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/trust"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// What is said of a start and a stop: to the log, the metrics and the trail.

// warn logs what people have to put right. What was tampered with is refused to
// whoever needs it, and does not keep everybody else from their work.
func (s *Server) warn(ctx context.Context, deployment keyserver.Deployment) error {
	unlessTampered := func(err error) error {
		if fault.CodeOf(err) == fault.StoreTampered {
			return nil
		}
		return err
	}
	if deployment == keyserver.Split {
		if err := unlessTampered(engine.WarnOfDuties(ctx, s.store, s.cfg.Logger)); err != nil {
			return err
		}
	}
	return unlessTampered(trust.WarnOfWeakCAs(ctx, s.store, s.cfg.Logger))
}

// warnOfBreakGlass tells whoever looks at the log or the metrics that approvals are
// not asked for.
func (s *Server) warnOfBreakGlass(ctx context.Context) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "keyserver_break_glass", Help: "1 while the process lets through without an approval what takes one."})
	s.registry.MustRegister(gauge)
	if s.cfg.BreakGlass {
		gauge.Set(1)
		s.cfg.Logger.ErrorContext(ctx, "started with --break-glass: operations are done without the approvals that they take; start without it as soon as it is over")
	}
}

// recordStart writes that the process serves, and before it, once in the life of
// a key server, that it was made. What cannot be recorded does not start.
func (s *Server) recordStart(ctx context.Context, prepared bootstrap.Prepared) error {
	if prepared.First {
		if err := s.record(ctx, keyserver.AuditMade); err != nil {
			return err
		}
	}
	if prepared.Sealed > 0 {
		s.cfg.Logger.Warn("the rows of the database had no MACs and got them now, taken for true; only the first start of a version that makes them does that",
			"rows", prepared.Sealed)
		if err := s.record(ctx, keyserver.AuditSealed); err != nil {
			return err
		}
	}
	err := s.record(ctx, keyserver.AuditStart)
	s.started = err == nil
	return err
}

// recordStop writes that the process stops by itself, as the last row of its
// chain. That it was killed shows in the row that is missing.
func (s *Server) recordStop(ctx context.Context) error {
	if !s.started {
		return nil
	}
	return s.record(ctx, keyserver.AuditStop)
}

func (s *Server) record(ctx context.Context, operation string) error {
	return s.rows.Write(ctx, keyserver.AuditEntry{
		Operation: operation, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession,
		Principal: keyserver.PrincipalRef{System: s.system}, Object: s.cfg.Version.Banner,
	})
}

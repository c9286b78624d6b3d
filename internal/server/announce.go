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

// Messages in the log, the metrics and the audit log about the start and stop of the process.

// warn logs settings that an administrator has to correct. It ignores errors about tampered rows: every read of such a
// row fails anyway, and the process must be able to start.
func (s *Server) warn(ctx context.Context, deployment keyserver.Deployment) error {
	unlessTampered := func(err error) error {
		if fault.CodeOf(err) == fault.StoreTampered {
			return nil
		}
		return err
	}
	if deployment == keyserver.Split {
		if err := unlessTampered(engine.LogDutyConflicts(ctx, s.store, s.cfg.Logger)); err != nil {
			return err
		}
	}
	return unlessTampered(trust.WarnOfWeakCAs(ctx, s.store, s.cfg.Logger))
}

// warnOfBreakGlass reports in the log and in a metric that the process requires no approvals.
func (s *Server) warnOfBreakGlass(ctx context.Context) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "keyserver_break_glass", Help: "1 while the process performs operations without the approvals that they need (--break-glass)."})
	s.registry.MustRegister(gauge)
	if s.cfg.BreakGlass {
		gauge.Set(1)
		s.cfg.Logger.ErrorContext(ctx, "started with --break-glass: operations need no approvals; restart without the flag after the emergency")
	}
}

// recordStart writes the audit row of the start. At the first start, it first writes an audit row about the creation of
// the key server. If a row cannot be written, the process does not start.
func (s *Server) recordStart(ctx context.Context, prepared bootstrap.Prepared) error {
	if prepared.First {
		if err := s.record(ctx, keyserver.AuditMade); err != nil {
			return err
		}
	}
	if prepared.Sealed > 0 {
		s.cfg.Logger.Warn("the rows of the database had no MACs, so MACs were added and the rows are trusted; this is normal only at the first start of a release with row MACs",
			"rows", prepared.Sealed)
		if err := s.record(ctx, keyserver.AuditSealed); err != nil {
			return err
		}
	}
	err := s.record(ctx, keyserver.AuditStart)
	s.started = err == nil
	return err
}

// recordStop writes the audit row of an orderly shutdown. It is the last row of the chain. If the process was killed,
// this row is missing.
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

package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// stepEvery is how often the process checks whether a CA must be prepared, activated or retired.
	stepEvery = time.Minute
	// stepTimeout is the time limit of one step.
	stepTimeout = time.Minute
)

// authorities prepares, activates and retires the key server's CAs automatically.
type authorities struct {
	manager *ca.Manager
	rows    *audit.Writer
	system  keyserver.SystemID
	logger  *slog.Logger
}

func (a authorities) run(ctx context.Context) {
	a.look(ctx)
	each(ctx, stepEvery, func() { a.look(ctx) })
}

// look performs one step if a step is due. It writes a durable audit row before the step.
func (a authorities) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	step, err := a.manager.Next(ctx)
	if err == nil && step.Action != "" {
		err = a.execute(ctx, step)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		a.logger.Warn("cannot maintain the internal CAs; retrying", "error", err)
	}
}

func (a authorities) execute(ctx context.Context, step ca.Step) error {
	row := keyserver.AuditEntry{
		Operation: keyserver.OpChangeAuthority.Key, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession,
		Principal: keyserver.PrincipalRef{System: a.system}, Object: string(step.Action),
	}
	if !step.ID.IsZero() {
		row.Object += " " + step.ID.Base64()
	}
	if err := a.rows.Write(ctx, row); err != nil {
		return err
	}
	err := a.manager.Execute(ctx, step)
	if err == nil {
		a.logger.Info("the state of the internal CAs changed", "action", step.Action)
		return nil
	}
	row.Outcome, row.Reason = keyserver.Failed, string(fault.ReasonOf(err))
	if f := fault.As(err); f != nil && f.Code == fault.AuthorityState {
		return a.rows.Write(ctx, row) // another replica has already performed the step
	}
	return errors.Join(err, a.rows.Write(ctx, row))
}

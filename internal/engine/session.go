package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Guard is the gate in front of what another package does: it decides whether
// the caller may, makes the row of that decision durable, and runs the effect.
// What is the caller's own needs no role, but somebody who may still act.
func (e *Engine) Guard(ctx context.Context, by keyserver.Caller, g keyserver.Guarded, effect func() error) error {
	r := request{by: by, op: g.Operation, object: g.Object}
	if !g.Own {
		return e.perform(ctx, r, effect)
	}
	err := e.Store.Current(ctx)
	if err == nil {
		_, _, err = e.standing(ctx, by)
	}
	if err != nil {
		return e.refused(ctx, r, err)
	}
	if err := e.Auditor.Write(ctx, r.row(keyserver.Allowed, "")); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return e.failed(ctx, r, err)
	}
	return nil
}

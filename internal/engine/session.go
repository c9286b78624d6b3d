package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Guard is the gate in front of what another package does: it decides whether
// the caller may, makes the row of that decision durable, and runs the effect.
// What is the caller's own needs no role, but somebody who may still act.
func (e *Engine) Guard(ctx context.Context, by keyserver.Caller, g keyserver.Guarded, effect func() error) error {
	return e.perform(ctx, request{by: by, op: g.Operation, object: g.Object, own: g.Own}, effect)
}

// GuardWrite is Guard for an effect that is one transaction, which may refuse the caller
// as well. A refusal has one row. fn runs twice, and must change only tx and what it
// returns.
func (e *Engine) GuardWrite(ctx context.Context, by keyserver.Caller, g keyserver.Guarded, fn func(tx *sqlstore.Tx) error) error {
	return e.write(ctx, request{by: by, op: g.Operation, object: g.Object, own: g.Own}, fn)
}

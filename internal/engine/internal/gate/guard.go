package gate

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Guard is the gate in front of what another package does: it decides whether
// the caller may, makes the row of that decision durable, and runs the effect.
// What is the caller's own needs no role, but somebody who may still act.
func (g *Gate) Guard(ctx context.Context, by keyserver.Caller, do keyserver.Guarded, effect func() error) error {
	return g.Perform(ctx, Request{By: by, Op: do.Operation, Object: do.Object, Own: do.Own}, effect)
}

// GuardWrite is Guard for an effect that is one transaction, which may refuse the caller
// as well. A refusal has one row. fn runs twice, and must change only tx and what it
// returns.
func (g *Gate) GuardWrite(ctx context.Context, by keyserver.Caller, do keyserver.Guarded, fn func(tx *sqlstore.Tx) error) error {
	return g.Write(ctx, Request{By: by, Op: do.Operation, Object: do.Object, Own: do.Own}, fn)
}

package gate

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Guard is Perform for an operation of another package. If do.Own is set, the object belongs
// to the caller: then the operation needs no role, but the caller must still be in force.
func (g *Gate) Guard(ctx context.Context, by keyserver.Caller, do keyserver.Guarded, effect func() error) error {
	return g.Perform(ctx, Request{By: by, Op: do.Operation, Object: do.Object, Own: do.Own}, effect)
}

// GuardWrite is Guard for an effect that is one transaction, if the transaction may also refuse the operation. A
// refusal has one row. fn runs twice, and must not change anything except tx and the results of fn.
func (g *Gate) GuardWrite(ctx context.Context, by keyserver.Caller, do keyserver.Guarded, fn func(tx *sqlstore.Tx) error) error {
	return g.Write(ctx, Request{By: by, Op: do.Operation, Object: do.Object, Own: do.Own}, fn)
}

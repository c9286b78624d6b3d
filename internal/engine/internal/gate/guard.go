package gate

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Guard is Perform for an operation of another package. If do.Own is set, the object belongs to the caller. Then the
// operation needs no role, but the checks of CheckCaller still apply.
func (g *Gate) Guard(ctx context.Context, by keyserver.Caller, do keyserver.ExternalOperation, effect func() error) error {
	return g.Perform(ctx, Request{By: by, Op: do.Operation, Object: do.Object, Own: do.Own}, effect)
}

// GuardWrite is Guard for an effect in one transaction that may refuse the operation. A refused operation has one audit
// row. Because fn runs twice, it must not change anything except tx and its results.
func (g *Gate) GuardWrite(ctx context.Context, by keyserver.Caller, do keyserver.ExternalOperation, fn func(tx *sqlstore.Tx) error) error {
	return g.Write(ctx, Request{By: by, Op: do.Operation, Object: do.Object, Own: do.Own}, fn)
}

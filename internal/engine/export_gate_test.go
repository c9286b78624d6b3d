package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// MayDo passes the gate for any operation, without a key and without effect.
func (e *Engine) MayDo(ctx context.Context, by keyserver.Caller, op keyserver.Operation) error {
	return e.AuthorizeAndAudit(ctx, gate.Request{By: by, Op: op})
}

package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// MayDo authorizes and audits an operation without a key and without an effect.
func (e *Engine) MayDo(ctx context.Context, by keyserver.Caller, op keyserver.Operation) error {
	return e.AuthorizeAndAudit(ctx, gate.Request{By: by, Op: op})
}

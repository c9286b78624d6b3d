package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Configuration implements keyserver.Configurations.
func (e *Engine) Configuration(ctx context.Context, by keyserver.Caller, xpath string) (keyserver.ConfigNode, error) {
	if err := e.AuthorizeAndAudit(ctx, gate.Request{By: by, Op: keyserver.OpReadConfiguration, Object: xpath}); err != nil {
		return keyserver.ConfigNode{}, err
	}
	return e.Settings, nil
}

package engine

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// DataKeys reads and rotates the data keys of the keyring.
type DataKeys interface {
	Custody(ctx context.Context) (keyserver.Custody, error)
	Rotate(ctx context.Context) (keyserver.DataKey, error)
}

// Custody implements keyserver.Custodies.
func (e *Engine) Custody(ctx context.Context, by keyserver.Caller) (c keyserver.Custody, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadCustody}, func() error {
		c, err = e.DataKeys.Custody(ctx)
		return err
	})
	return c, err
}

// RotateDataKey implements keyserver.Custodies.
func (e *Engine) RotateDataKey(ctx context.Context, by keyserver.Caller) (made keyserver.ID, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpRotateDataKey}, func() error {
		k, err := e.DataKeys.Rotate(ctx)
		made = k.ID
		if errors.Is(err, keyring.ErrRewrapping) {
			return fault.New(fault.RewrapRunning, "keys are still being rewrapped under the active data key; GET /api/custody shows the progress; run doctor if rewrap.refused is not 0")
		}
		return err
	})
	return made, err
}

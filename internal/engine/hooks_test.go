package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// RotateBy lets a test say how a line is rotated.
func (e *Engine) RotateBy(rotate func(ctx context.Context, key keyserver.ID) error) {
	e.rotate = rotate
}

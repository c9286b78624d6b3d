package keys

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// RotateBy lets a test say how a line is rotated.
func (ks *Keys) RotateBy(rotate func(ctx context.Context, key keyserver.ID) error) {
	ks.rotate = rotate
}

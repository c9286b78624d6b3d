package keys

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// RotateBy replaces the function that rotates an exhausted lineage.
func (ks *Keys) RotateBy(rotate func(ctx context.Context, key keyserver.ID) error) {
	ks.rotate = rotate
}

package archive

import (
	"context"
	"time"

	"gocloud.dev/blob"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
)

// In returns an archive in an open bucket.
func In(bucket *blob.Bucket) *Archive { return &Archive{blobstore.In(bucket)} }

// Pass runs one pass of Run.
func Pass(ctx context.Context, a *Archiver) (more bool, err error) { return a.pass(ctx) }

// PassAndPause runs a pass and returns the pause of Run after it.
func PassAndPause(ctx context.Context, a *Archiver) time.Duration {
	more, err := a.pass(ctx)
	return a.pause(ctx, more, err)
}

package archive

import (
	"context"
	"time"

	"gocloud.dev/blob"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
)

// In is an archive in a bucket that is open.
func In(bucket *blob.Bucket) *Archive { return &Archive{blobstore.In(bucket)} }

// Pass is what Run does again and again.
func Pass(ctx context.Context, a *Archiver) (more bool, err error) { return a.pass(ctx) }

// PassAndPause answers how long Run would wait behind a pass, too.
func PassAndPause(ctx context.Context, a *Archiver) time.Duration {
	more, err := a.pass(ctx)
	return a.pause(ctx, more, err)
}

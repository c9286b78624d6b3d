// Package archive stores the rows of the audit log outside the database, in a directory or a bucket. The rows are
// stored in segments, each with a checkpoint that covers it. With the key of the log, the archive can be verified on
// any machine without the key server (docs/adr/0045-an-archive-for-the-audit-log.md).
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
)

// Rows is the number of rows of a segment, which is a complete subtree of the audit tree.
const (
	Rows          = audit.SegmentRows
	segmentHeight = 16
)

// maxSmall is the maximum size of a manifest or a checkpoint in bytes.
const maxSmall = 1 << 16

// Archive is the object store of the segments. It is safe for concurrent use.
type Archive struct{ *blobstore.Store }

// Open opens an archive.
func Open(ctx context.Context, url string) (*Archive, error) {
	s, err := blobstore.Open(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open the audit archive: %w", err)
	}
	return &Archive{s}, nil
}

// object opens an object, or returns nil if there is none. Its content is not trusted: an attacker may have replaced
// it.
func (a *Archive) object(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	r, size, err := a.Get(ctx, name)
	if errors.Is(err, blobstore.ErrNoFile) {
		err = damaged("%s", err)
	}
	return r, size, err
}

func (a *Archive) get(ctx context.Context, name string) (content []byte, err error) {
	r, _, err := a.object(ctx, name)
	if err != nil || r == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	content, err = io.ReadAll(io.LimitReader(r, maxSmall+1))
	if err == nil && len(content) > maxSmall {
		err = damaged("%s is too large for such an object", name)
	}
	return content, err
}

func (a *Archive) each(ctx context.Context, segment func(first int64) error) error {
	return a.Each(ctx, func(o blobstore.Object) error {
		if first := firstOf(o.Name); first > 0 {
			return segment(first)
		}
		return nil
	})
}

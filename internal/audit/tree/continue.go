package tree

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
)

// RootOf computes the root that the tree of head has after it has grown to size. It uses the hashes of that tree and
// the new rows.
func RootOf(ctx context.Context, source Reader, head audit.TreeHead, size int64) (tlog.Hash, error) {
	reader := hashes(ctx, source, nil)
	if size <= head.Size {
		return tlog.TreeHash(size, reader)
	}
	full, err := reader.ReadHashes(frontier(head.Size))
	if err != nil {
		return tlog.Hash{}, err
	}
	g := make([][]byte, len(full))
	for i := range full {
		g[i] = full[i][:]
	}
	at, err := subtrees.NewRange(0, uint64(head.Size), g) //nolint:gosec // a size is not negative
	if err != nil {
		return tlog.Hash{}, err
	}
	var leaf tlog.Hash
	var scratch []byte
	for after := head.Size; after < size; {
		rows, err := source.AuditRange(ctx, after, size, readPage)
		if err != nil {
			return tlog.Hash{}, fmt.Errorf("read the audit rows after %d: %w", after, err)
		}
		if len(rows) == 0 || rows[0].Seq != after+1 {
			return tlog.Hash{}, fmt.Errorf("%w: row %d is missing", ErrInconsistent, after+1)
		}
		for i := range rows {
			leaf, scratch = audit.Leaf(scratch, &rows[i])
			if err := at.Append(leaf[:], nil); err != nil {
				return tlog.Hash{}, err
			}
		}
		after = rows[len(rows)-1].Seq
	}
	root, err := at.GetRootHash(nil)
	return tlog.Hash(root), err
}

package tree

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
)

const (
	// scrubNew is the maximum number of newest rows that each interval checks again. scrubOld is the number of older rows
	// that each interval checks. After the last older row, the check starts again at row 1.
	scrubNew = 4096
	scrubOld = 1024
)

type scrub struct {
	after int64    // the last old row that was checked
	sizes [2]int64 // sizes of the tree at the last check and the one before
}

// checkStoredRows checks the rows that the tree got in the last two intervals, and the next scrubOld older rows.
func (t *Tree) checkStoredRows(ctx context.Context) {
	t.mu.Lock()
	head := t.last
	t.mu.Unlock()
	if head.Size == 0 || t.Failing() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	s := &t.scrub
	newest := max(s.sizes[1], head.Size-scrubNew)
	s.sizes = [2]int64{head.Size, s.sizes[0]}
	err := t.compare(ctx, head, newest, head.Size)
	if err == nil {
		if s.after >= newest {
			s.after = 0
		}
		last := min(s.after+scrubOld, head.Size)
		err = t.compare(ctx, head, s.after, last)
		s.after = last
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrInconsistent) {
		t.Logger.Warn("audit rows could not be compared with the audit tree; trying again", "error", err)
	}
}

// compare compares rows with their leaves and reports the first difference. It verifies the leaves with the root, so it
// detects that a row and its hash were changed together.
func (t *Tree) compare(ctx context.Context, head audit.TreeHead, after, last int64) error {
	if t.Pruned != nil {
		pruned, err := t.Pruned(ctx)
		if err != nil {
			return err
		}
		after = max(after, pruned)
	}
	for after < last {
		to := min(last, after+readPage)
		if err := t.comparePage(ctx, head, after, to); err != nil {
			return err
		}
		after = to
	}
	return nil
}

func (t *Tree) comparePage(ctx context.Context, head audit.TreeHead, after, last int64) error {
	indexes := make([]int64, 0, last-after)
	for i := after; i < last; i++ {
		indexes = append(indexes, tlog.StoredHashIndex(0, i))
	}
	leaves, err := tlog.TileHashReader(tlog.Tree{N: head.Size, Hash: head.Root}, tiles{ctx, t.Store}).ReadHashes(indexes)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return t.differs(after+1, fmt.Sprintf("the hashes of the rows %d to %d do not lead to the root of the audit tree: %s", after+1, last, err))
	}
	rows, err := t.Store.AuditRange(ctx, after, last, len(indexes))
	if err != nil {
		return err
	}
	var scratch []byte
	for i, want := range leaves {
		seq := after + int64(i) + 1
		if i >= len(rows) || rows[i].Seq != seq {
			return t.differs(seq, fmt.Sprintf("row %d of the audit log is missing", seq))
		}
		var leaf tlog.Hash
		if leaf, scratch = audit.Leaf(scratch, &rows[i]); leaf != want {
			return t.differs(seq, fmt.Sprintf("row %d of the audit log differs from the row that was written", seq))
		}
	}
	return nil
}

func (t *Tree) differs(seq int64, problem string) error {
	t.RowAlarm(seq, problem)
	return fmt.Errorf("%w: %s", ErrInconsistent, problem)
}

// tiles reads tiles from the database for package tlog.
type tiles struct {
	ctx   context.Context //nolint:containedctx // of one check
	store Store
}

func (tiles) Height() int { return height }

func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (r tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	out := make([][]byte, len(wanted))
	for i, t := range wanted {
		var err error
		if out[i], err = readTile(r.ctx, r.store, t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

package tree

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// coverWait is how long a caller waits, in addition to the interval, until the tree contains a row.
const coverWait = 2 * time.Second

// Checkpoint returns the newest checkpoint. If the tree is empty, it waits for the first row and fails with NOT_READY
// if none is added.
func (t *Tree) Checkpoint(ctx context.Context) ([]byte, error) {
	head, err := t.cover(ctx, 1)
	return head.Checkpoint, err
}

// Prove proves that the tree of the given size continues the earlier tree of the size old, which must not be 0.
func (t *Tree) Prove(ctx context.Context, size, old int64) (tlog.TreeProof, error) {
	return tlog.ProveTree(size, old, hashes(ctx, t.Store, nil))
}

// Receipt returns the proof that a row is in the tree. If the row is too new, it waits until the tree contains the row.
// It fails with NOT_FOUND if the audit log has no such row.
func (t *Tree) Receipt(ctx context.Context, seq int64) ([]byte, error) {
	head, err := t.Store.AuditTree(ctx)
	if err != nil {
		return nil, err
	}
	if seq > head.Size {
		end, err := t.Store.AuditEnd(ctx)
		if err != nil {
			return nil, err
		}
		if seq > end {
			return nil, fault.New(fault.NotFound, "the audit log has no row %d; its last row is %d", seq, end).Audited(fault.ReasonObjectNotFound)
		}
		if head, err = t.cover(ctx, seq); err != nil {
			return nil, err
		}
	}
	if head, err = t.cosigned(ctx, head, seq); err != nil {
		return nil, err
	}
	hashed, err := tlog.ProveRecord(head.Size, seq-1, hashes(ctx, t.Store, nil))
	if err != nil {
		return nil, err
	}
	receipt := proof.TLogProof{Index: uint64(seq - 1), Checkpoint: head.Checkpoint} //nolint:gosec // a row's number is positive
	for _, h := range hashed {
		receipt.Hashes = append(receipt.Hashes, h)
	}
	return receipt.Marshal(), nil
}

// cosigned returns the newest cosigned tree head if that head covers the row. Otherwise it returns the argument head.
func (t *Tree) cosigned(ctx context.Context, head audit.TreeHead, seq int64) (audit.TreeHead, error) {
	other, err := t.Store.CosignedAuditTree(ctx)
	if err == nil && other.Size >= seq {
		return other, nil
	}
	return head, err
}

// cover waits for a tree head that covers a row, and requests that the tree grows.
func (t *Tree) cover(ctx context.Context, seq int64) (audit.TreeHead, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Interval+coverWait)
	defer cancel()
	for {
		t.mu.Lock()
		grown, failed := t.grown, t.err
		t.mu.Unlock()
		head, err := t.Store.AuditTree(ctx)
		if err != nil || head.Size >= seq {
			return head, err
		}
		if failed != nil {
			return head, fault.Temporary(fault.NotReady, fault.ScopeProcess, t.Interval, "the audit tree does not grow, so newer rows have no receipt; the log of the key server says why")
		}
		select {
		case t.asked <- struct{}{}:
		default:
		}
		select {
		case <-grown:
		case <-time.After(askedEvery): // another replica may have added the row
		case <-ctx.Done():
			return head, fault.Temporary(fault.NotReady, fault.ScopeProcess, t.Interval, "the audit tree does not contain row %d yet; try again", seq)
		}
	}
}

// Tile returns the first hashes of a tile; width is their number, at most 256. It fails with NOT_FOUND if the tile has
// fewer hashes than width.
func (t *Tree) Tile(ctx context.Context, level int, index int64, width int) ([]byte, error) {
	head, err := t.Store.AuditTree(ctx)
	if err != nil {
		return nil, err
	}
	if !has(head.Size, level, index, width) {
		return nil, noTile
	}
	return readTile(ctx, t.Store, tlog.Tile{H: height, L: level, N: index, W: width})
}

// Entries returns the entry bundle of a tile of level 0: for each row the length of its encoding in two bytes, then the
// encoding.
func (t *Tree) Entries(ctx context.Context, index int64, width int) ([]byte, error) {
	head, err := t.Store.AuditTree(ctx)
	if err != nil {
		return nil, err
	}
	if !has(head.Size, 0, index, width) {
		return nil, noTile
	}
	first := index * tileWidth
	rows, err := t.Store.AuditRange(ctx, first, first+int64(width), width)
	if err != nil {
		return nil, err
	}
	if len(rows) != width {
		return nil, fmt.Errorf("%w: the rows %d to %d are incomplete: only %d exist", ErrInconsistent, first+1, first+int64(width), len(rows))
	}
	return Bundle(rows), nil
}

// Bundle concatenates rows in the entry format of C2SP tlog-tiles.
func Bundle(rows []keyserver.AuditEntry) []byte {
	var out, row []byte
	for i := range rows {
		row = audit.AppendEncoding(row[:0], &rows[i])
		out = binary.BigEndian.AppendUint16(out, uint16(len(row))) //nolint:gosec // seven texts of 4 KiB at most
		out = append(out, row...)
	}
	return out
}

var noTile = fault.New(fault.NotFound, "the audit tree has no such tile, or the tile has fewer hashes").Audited(fault.ReasonObjectNotFound)

func has(size int64, level int, index int64, width int) bool {
	return level*height < 63 && index>>(63-height) == 0 && index<<height+int64(width) <= size>>(height*level)
}

// VerifyReceipt verifies that a row is in the log that signs with key. It needs no server.
func VerifyReceipt(receipt []byte, row *keyserver.AuditEntry, key note.Verifier) error {
	var p proof.TLogProof
	if err := p.Unmarshal(receipt); err != nil {
		return fmt.Errorf("the receipt is not a C2SP tlog-proof: %w", err)
	}
	head, err := Open(p.Checkpoint, key)
	if err != nil {
		return err
	}
	if p.Index != uint64(row.Seq-1) || row.Seq < 1 { //nolint:gosec // row.Seq is checked in the same condition
		return fmt.Errorf("the receipt is for row %d, but the row is %d", p.Index+1, row.Seq)
	}
	hashed := make(tlog.RecordProof, len(p.Hashes))
	for i, h := range p.Hashes {
		hashed[i] = h
	}
	leaf, _ := audit.Leaf(nil, row)
	if row.Seq > head.Size || tlog.CheckRecord(hashed, head.Size, head.Root, row.Seq-1, leaf) != nil {
		return errors.New("the receipt does not prove this row: the row or the receipt was changed")
	}
	return nil
}

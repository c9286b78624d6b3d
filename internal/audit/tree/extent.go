package tree

import (
	"context"
	"fmt"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Extent proves that the rows First to Last are complete in the log, and that they continue the rows before them. All
// hashes are RFC 6962 hashes.
type Extent struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	Count int64 `json:"count"`
	// Before is the root of the tree of the rows before First. After is the root of the tree of the rows up to Last. The
	// After of one extent is the Before of the next.
	Before tlog.Hash `json:"before"`
	After  tlog.Hash `json:"after"`
	// Frontier contains the roots of the full subtrees of the rows before First, from left to right. After can be computed
	// from Frontier and the rows.
	Frontier []tlog.Hash `json:"frontier"`
	// Checkpoint is the newest checkpoint, which covers Last. Proof proves that the tree of the checkpoint continues the
	// tree with the root After.
	Checkpoint string      `json:"checkpoint"`
	Proof      []tlog.Hash `json:"proof"`
}

// Extend returns the proof of the rows first to last for a tree head.
func Extend(ctx context.Context, store Store, head audit.TreeHead, first, last int64) (Extent, error) {
	if first < 1 || last < first || last > head.Size {
		return Extent{}, fmt.Errorf("the tree of %d rows has no rows %d to %d", head.Size, first, last)
	}
	e := Extent{First: first, Last: last, Count: last - first + 1, Checkpoint: string(head.Checkpoint)}
	reader := hashes(ctx, store, nil)
	var err error
	if e.Frontier, err = reader.ReadHashes(frontier(first - 1)); err != nil {
		return Extent{}, err
	}
	if e.Before, err = grow(first-1, e.Frontier, nil); err != nil {
		return Extent{}, err
	}
	if e.After, err = tlog.TreeHash(last, reader); err != nil {
		return Extent{}, err
	}
	e.Proof, err = tlog.ProveTree(head.Size, last, reader)
	return e, err
}

// frontier returns the indexes (tlog.StoredHashIndex) of the full subtrees of a tree of a given size, from left to
// right.
func frontier(size int64) []int64 {
	places := []int64{}
	for _, node := range compact.RangeNodes(0, uint64(size), nil) { //nolint:gosec // a size is not negative
		places = append(places, tlog.StoredHashIndex(int(node.Level), int64(node.Index))) //nolint:gosec // below the size
	}
	return places
}

var subtrees = compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// grow appends leaves to a tree that has the given full subtrees, and returns its root.
func grow(size int64, full, leaves []tlog.Hash) (tlog.Hash, error) {
	if size == 0 && len(leaves) == 0 {
		return tlog.TreeHash(0, nil)
	}
	hashes := make([][]byte, len(full))
	for i := range full {
		hashes[i] = full[i][:]
	}
	at, err := subtrees.NewRange(0, uint64(size), hashes) //nolint:gosec // a size is not negative
	if err != nil {
		return tlog.Hash{}, err
	}
	for i := range leaves {
		if err := at.Append(leaves[i][:], nil); err != nil {
			return tlog.Hash{}, err
		}
	}
	root, err := at.GetRootHash(nil)
	if err != nil {
		return tlog.Hash{}, err
	}
	return tlog.Hash(root), nil
}

// Verify verifies that the rows are exactly the rows First to Last of the log that signs with key. It needs no server.
func (e *Extent) Verify(rows []keyserver.AuditEntry, key note.Verifier) error {
	leaves := make([]tlog.Hash, len(rows))
	var scratch []byte
	for i := range rows {
		leaves[i], scratch = audit.Leaf(scratch, &rows[i])
	}
	return e.VerifyLeaves(leaves, key)
}

// VerifyLeaves is Verify for a caller that has the hashes of the rows.
func (e *Extent) VerifyLeaves(leaves []tlog.Hash, key note.Verifier) error {
	head, err := Open([]byte(e.Checkpoint), key)
	if err != nil {
		return err
	}
	if e.First < 1 || e.Last > head.Size || e.Count != e.Last-e.First+1 || int64(len(leaves)) != e.Count {
		return fmt.Errorf("%w: %d rows do not match the range %d to %d under a checkpoint of %d rows", ErrInconsistent, len(leaves), e.First, e.Last, head.Size)
	}
	if before, err := grow(e.First-1, e.Frontier, nil); err != nil || before != e.Before {
		return fmt.Errorf("%w: the hashes of the rows before %d do not belong to one tree", ErrInconsistent, e.First)
	}
	if after, err := grow(e.First-1, e.Frontier, leaves); err != nil || after != e.After {
		return fmt.Errorf("%w: the rows %d to %d are not those of the log", ErrInconsistent, e.First, e.Last)
	}
	if tlog.CheckTree(e.Proof, head.Size, head.Root, e.Last, e.After) != nil {
		return fmt.Errorf("%w: the rows %d to %d are not under the checkpoint of %d rows", ErrInconsistent, e.First, e.Last, head.Size)
	}
	return nil
}

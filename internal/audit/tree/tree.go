// Package tree proves the audit log: every row is a leaf of one Merkle tree (RFC
// 6962), in the order of the sequence numbers. The tree follows the commits and never
// blocks them. It signs its size and root (C2SP tlog-checkpoint), and returns its
// tiles (C2SP tlog-tiles) and proofs that a row is in it (C2SP tlog-proof).
// docs/audit.md says how to verify them.
package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// ErrInconsistent means that the tree in the database is not the one that was signed, or
// that rows differ from those that were written.
var ErrInconsistent = errors.New("the audit tree does not match the signed checkpoint")

const (
	// maxStep is the maximum number of rows of one growth. It bounds memory and the
	// transaction after a long pause.
	maxStep = 1 << 16
	// readPage is the number of rows in one read.
	readPage = 1000
	// askedEvery is the shortest interval in which waiting callers make the tree grow.
	askedEvery = 100 * time.Millisecond
	stepTime   = time.Minute
	endTime    = 2 * time.Second
)

// Store is the part of a database that a tree uses.
type Store interface {
	Reader
	// CosignedAuditTree returns the newest head that witnesses have cosigned.
	CosignedAuditTree(ctx context.Context) (audit.TreeHead, error)
	// AuditEnd returns the greatest sequence number of the rows.
	AuditEnd(ctx context.Context) (int64, error)
	// GrowAuditTree stores tiles and a head if the tree still has the given size, and
	// reports whether it did. It calls still (optional) after it has excluded other
	// writers and after a replaced database was reported.
	GrowAuditTree(ctx context.Context, size int64, tiles []audit.Tile, head audit.TreeHead, still func() bool) (bool, error)
}

// DefaultInterval is the default maximum age of a checkpoint.
const DefaultInterval = 5 * time.Second

// Config is the configuration of a Tree. All fields are required except
// Interval, SoleWriter and Pruned.
type Config struct {
	Store    Store
	Signer   *Signer
	Recent   *Recent
	Interval time.Duration // the maximum age of a checkpoint; default DefaultInterval
	Clock    func() time.Time
	Logger   *slog.Logger
	// Alarm is called with the reason if the tree cannot grow any more.
	Alarm func(problem string)
	// RowAlarm is called for a row that the tree has, and that is missing or
	// different in the database.
	RowAlarm func(seq int64, problem string)
	// SoleWriter means that no other process writes rows.
	SoleWriter bool
	// Pruned returns the last row that may be missing in the database because rows were removed. nil: no row may be
	// missing.
	Pruned func(ctx context.Context) (int64, error)
}

// Tree grows in the background. It is safe for concurrent use.
type Tree struct {
	Config

	asked chan struct{} // contains a token if a caller waits
	scrub scrub         // used only by Run

	mu    sync.Mutex
	last  audit.TreeHead // the last head that this process has verified
	err   error          // of the last growth
	grown chan struct{}  // closed and replaced after each growth, successful or not
}

// New returns a tree. Run makes it grow.
func New(c Config) *Tree {
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	return &Tree{Config: c, asked: make(chan struct{}, 1), grown: make(chan struct{})}
}

// Key returns the key that verifies the checkpoints.
func (t *Tree) Key() keyserver.AuditKey {
	return keyserver.AuditKey{Origin: t.Signer.Signer.Name(), Key: t.Signer.Key}
}

// Run grows the tree until ctx ends, and then once more.
func (t *Tree) Run(ctx context.Context) {
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		t.catchUp(end)
	}()
	ticker := time.NewTicker(t.Interval)
	defer ticker.Stop()
	for {
		t.catchUp(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.look(ctx)
		case <-t.asked:
		}
		rest := time.NewTimer(askedEvery)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

// catchUp grows the tree until it has every row.
func (t *Tree) catchUp(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		step, cancel := context.WithTimeout(ctx, stepTime)
		var err error
		more, err = t.grow(step)
		cancel()
		if err != nil && ctx.Err() == nil {
			t.fail(err)
			return
		}
	}
}

// fail records a failed growth, and wakes the waiting callers.
func (t *Tree) fail(err error) {
	t.mu.Lock()
	first := t.err == nil
	t.err = err
	t.wake()
	t.mu.Unlock()
	if first {
		t.Logger.Error("the audit tree does not grow", "error", err)
	}
	if errors.Is(err, ErrInconsistent) {
		t.Alarm(err.Error())
	}
}

// wake wakes the waiting callers. The caller must hold the lock.
func (t *Tree) wake() {
	close(t.grown)
	t.grown = make(chan struct{})
}

// Failing returns the reason why the tree does not grow, or nil.
func (t *Tree) Failing() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Size returns the number of rows in the tree, as far as this process knows.
func (t *Tree) Size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last.Size
}

// Grown returns a channel that is closed when the tree grows or fails to.
func (t *Tree) Grown() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.grown
}

// grow adds missing rows to the tree, and reports whether there may be more.
func (t *Tree) grow(ctx context.Context) (more bool, err error) {
	head, err := t.Store.AuditTree(ctx)
	if err != nil {
		return false, err
	}
	end, err := t.Store.AuditEnd(ctx)
	if err != nil {
		return false, err
	}
	g, err := newGrowth(ctx, t.Store, head.Size)
	if err != nil {
		return false, err
	}
	if err := t.check(ctx, head, g); err != nil {
		return false, err
	}
	if end < head.Size {
		return false, fmt.Errorf("%w: the rows %d to %d are missing", ErrInconsistent, end+1, head.Size)
	}
	if end == head.Size {
		t.settle(head)
		return false, nil
	}
	last := min(end, head.Size+maxStep)
	lost := t.Recent.resetsSoFar()
	stored, err := t.addRows(ctx, g, last)
	if err != nil {
		return false, err
	}
	t.tell(head.Size, stored)
	next := audit.TreeHead{Size: g.size, At: t.Clock().UTC().Truncate(time.Microsecond)}
	if next.Root, err = g.root(ctx, t.Store); err != nil {
		return false, err
	}
	if next.Checkpoint, err = sign(t.Signer, next); err != nil {
		return false, err
	}
	done, err := t.Store.GrowAuditTree(ctx, head.Size, g.tiles(), next, func() bool { return t.Recent.resetsSoFar() == lost })
	if err != nil || !done {
		return true, err // another replica was faster, or the rows of the leaves are gone
	}
	t.settle(next)
	return last < end, nil
}

// tell logs how many rows the first growth of a process reads from the database. After an
// orderly stop there are none.
func (t *Tree) tell(size, stored int64) {
	t.mu.Lock()
	first := t.last.Size == 0
	t.mu.Unlock()
	if t.SoleWriter && first && size > 0 && stored > 0 {
		t.Logger.Warn("audit rows from before this start have no checkpoint, probably because the process was killed; they are signed as they are in the database", "rows", stored, "after", size)
	}
}

// settle stores a verified head.
func (t *Tree) settle(head audit.TreeHead) {
	t.Recent.forget(head.Size)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		t.Logger.Info("the audit tree grows again")
	}
	if head.Size != t.last.Size || t.err != nil {
		t.last, t.err = head, nil
		t.wake()
	}
}

// check fails if this key server has not signed the head, if the tiles do not lead to the head, or if the head does not
// continue the last head of this process.
func (t *Tree) check(ctx context.Context, head audit.TreeHead, g *growth) error {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	if head.Size == last.Size && head.Root == last.Root && head.Size > 0 {
		return t.checkRoot(ctx, head, g)
	}
	if head.Size < last.Size {
		return fmt.Errorf("%w: it has %d rows, but had %d", ErrInconsistent, head.Size, last.Size)
	}
	if len(head.Checkpoint) == 0 { // there was one, at least without rows (Begin)
		return fmt.Errorf("%w: its checkpoint was deleted from the database", ErrInconsistent)
	}
	signed, err := Open(head.Checkpoint, t.Signer.Verifier)
	if err != nil || signed.Size != head.Size || signed.Root != head.Root {
		return fmt.Errorf("%w: the checkpoint of %d rows was not signed by this key server", ErrInconsistent, head.Size)
	}
	if err := t.checkRoot(ctx, head, g); err != nil {
		return err
	}
	if last.Size == 0 {
		return nil
	}
	proof, err := tlog.ProveTree(head.Size, last.Size, hashes(ctx, t.Store, nil))
	if err != nil {
		return err
	}
	if tlog.CheckTree(proof, head.Size, head.Root, last.Size, last.Root) != nil {
		return fmt.Errorf("%w: the tree of %d rows does not continue that of %d", ErrInconsistent, head.Size, last.Size)
	}
	return nil
}

func (t *Tree) checkRoot(ctx context.Context, head audit.TreeHead, g *growth) error {
	if head.Size == 0 {
		return nil
	}
	root, err := g.root(ctx, t.Store)
	if err == nil && root != head.Root {
		err = fmt.Errorf("%w: its hashes do not match the checkpoint of %d rows", ErrInconsistent, head.Size)
	}
	return err
}

// addRows adds the rows up to last, in order. Rows that this process has written are added
// as they were written. The others come from the database; stored is their number.
func (t *Tree) addRows(ctx context.Context, g *growth, last int64) (stored int64, err error) {
	for g.size < last {
		for _, leaf := range t.Recent.from(g.size+1, int(last-g.size)) {
			if err := g.add(leaf); err != nil {
				return stored, err
			}
		}
		if g.size == last {
			return stored, nil
		}
		rows, err := t.Store.AuditRange(ctx, g.size, last, readPage)
		if err != nil {
			return stored, err
		}
		if err := addStored(g, rows); err != nil {
			return stored, err
		}
		stored += int64(len(rows))
	}
	return stored, nil
}

// addStored adds rows from the database. They must be complete and unchanged.
func addStored(g *growth, rows []keyserver.AuditEntry) error {
	if len(rows) == 0 {
		return fmt.Errorf("%w: the row %d is missing", ErrInconsistent, g.size+1)
	}
	var scratch []byte
	for i := range rows {
		row := &rows[i]
		if row.Seq != g.size+1 {
			return fmt.Errorf("%w: the row %d is missing", ErrInconsistent, g.size+1)
		}
		var sum [32]byte
		if sum, scratch = audit.Sum(scratch, row); sum != row.Hash {
			return fmt.Errorf("%w: row %d differs from the row that was written", ErrInconsistent, row.Seq)
		}
		if err := g.add(tlog.RecordHash(scratch)); err != nil { // the bytes that Sum hashed
			return err
		}
	}
	return nil
}

// Begin returns the head of a tree without rows. It is stored when the key
// of a log is created.
func Begin(s *Signer, now time.Time) (head audit.TreeHead, err error) {
	head.At = now.UTC().Truncate(time.Microsecond)
	if head.Root, err = tlog.TreeHash(0, nil); err != nil {
		return head, err
	}
	head.Checkpoint, err = sign(s, head)
	return head, err
}

func sign(s *Signer, head audit.TreeHead) ([]byte, error) {
	text := log.Checkpoint{Origin: s.Signer.Name(), Size: uint64(head.Size), Hash: head.Root[:]}.Marshal() //nolint:gosec // a size is not negative
	return note.Sign(&note.Note{Text: string(text)}, s.Signer)
}

// Open verifies a checkpoint with the key of its log and returns its size and root.
func Open(checkpoint []byte, key note.Verifier) (audit.TreeHead, error) {
	c, _, _, err := log.ParseCheckpoint(checkpoint, key.Name(), key)
	if err != nil {
		return audit.TreeHead{}, fmt.Errorf("the checkpoint does not belong to %s, or was not signed by its key: %w", key.Name(), err)
	}
	if c.Size > maxSize || len(c.Hash) != tlog.HashSize {
		return audit.TreeHead{}, errors.New("the checkpoint has a size or a hash that no tree can have")
	}
	return audit.TreeHead{Size: int64(c.Size), Root: tlog.Hash(c.Hash), Checkpoint: bytes.Clone(checkpoint)}, nil
}

// maxSize is the largest accepted size of a tree.
const maxSize = 1 << 53

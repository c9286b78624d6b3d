// Package tree proves the audit log: every row is a leaf of one Merkle tree (RFC 6962), in the order of the sequence
// numbers. Rows are added after their commit, so the tree never blocks commits. The package signs the size and root of
// the tree (C2SP tlog-checkpoint). It returns tiles (C2SP tlog-tiles) and proofs that a row is in the tree (C2SP
// tlog-proof). docs/audit.md explains how to verify them.
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

// ErrInconsistent means that the tree in the database differs from the signed tree, or that rows differ from the
// written rows.
var ErrInconsistent = errors.New("the audit tree does not match the signed checkpoint")

const (
	// maxStep is the maximum number of rows that are added in one step. It limits memory use and the size of the
	// transaction after a long pause.
	maxStep = 1 << 16
	// readPage is the number of rows in one read.
	readPage = 1000
	// askedEvery is the minimum pause between two steps that waiting callers request.
	askedEvery = 100 * time.Millisecond
	stepTime   = time.Minute
	endTime    = 2 * time.Second
)

// Store is the part of a database that a tree uses.
type Store interface {
	Reader
	// CosignedAuditTree returns the newest tree head that a quorum of witnesses has cosigned.
	CosignedAuditTree(ctx context.Context) (audit.TreeHead, error)
	// AuditEnd returns the greatest sequence number of the rows.
	AuditEnd(ctx context.Context) (int64, error)
	// GrowAuditTree stores tiles and a tree head if the stored tree still has the given size and the optional function
	// still returns true. It reports whether it stored them. It calls still after it has locked out other writers, and
	// after a replaced database was reported.
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
	// Alarm is called with the reason if the tree cannot grow.
	Alarm func(problem string)
	// RowAlarm is called for a row of the tree that is missing or different in the database.
	RowAlarm func(seq int64, problem string)
	// SoleWriter means that no other process writes rows.
	SoleWriter bool
	// Pruned returns the last row that was removed from the database because it is archived. nil: no row was removed.
	Pruned func(ctx context.Context) (int64, error)
}

// Tree adds rows to the stored audit tree in the background. It is safe for concurrent use.
type Tree struct {
	Config

	asked chan struct{} // contains a value if a caller waits
	scrub scrub         // used only by Run

	mu    sync.Mutex
	last  audit.TreeHead // the last head that this process has verified
	err   error          // of the last step
	grown chan struct{}  // closed and replaced after each step, successful or not
}

// New returns a tree. Run adds rows to it.
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

// Run adds rows to the tree until ctx ends, and once more after that.
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
			t.checkStoredRows(ctx)
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

// wake wakes the waiting callers. The caller must hold t.mu.
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

// Grown returns a channel that is closed when rows were added to the tree or could not be added.
func (t *Tree) Grown() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.grown
}

// grow adds missing rows to the tree, and reports whether more rows may be missing.
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
		t.setLast(head)
		return false, nil
	}
	last := min(end, head.Size+maxStep)
	lost := t.Recent.resetsSoFar()
	stored, err := t.addRows(ctx, g, last)
	if err != nil {
		return false, err
	}
	t.logUnsignedRows(head.Size, stored)
	next := audit.TreeHead{Size: g.size, At: t.Clock().UTC().Truncate(time.Microsecond)}
	if next.Root, err = g.root(ctx, t.Store); err != nil {
		return false, err
	}
	if next.Checkpoint, err = sign(t.Signer, next); err != nil {
		return false, err
	}
	done, err := t.Store.GrowAuditTree(ctx, head.Size, g.tiles(), next, func() bool { return t.Recent.resetsSoFar() == lost })
	if err != nil || !done {
		return true, err // another replica stored the rows of this step first, or the database was reset
	}
	t.setLast(next)
	return last < end, nil
}

// logUnsignedRows logs how many rows the first step of a process reads from the database. After an orderly shutdown,
// there are no such rows.
func (t *Tree) logUnsignedRows(size, stored int64) {
	t.mu.Lock()
	first := t.last.Size == 0
	t.mu.Unlock()
	if t.SoleWriter && first && size > 0 && stored > 0 {
		t.Logger.Warn("audit rows from before this start have no checkpoint, probably because the process was killed; they are signed as they are in the database", "rows", stored, "after", size)
	}
}

// setLast stores a verified tree head in memory.
func (t *Tree) setLast(head audit.TreeHead) {
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

// check fails if this key server did not sign the stored tree head, if the root of the tiles differs from the head, or
// if the head does not continue the last head that this process verified.
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
	if len(head.Checkpoint) == 0 { // Begin stores a checkpoint even for an empty tree
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

// addRows adds the rows up to last, in order. It uses the leaves in Recent, and reads all other rows from the database;
// stored is the number of rows that it reads.
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

// addStored adds rows from the database. It fails if a row is missing or does not match its hash.
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
		if err := g.add(tlog.RecordHash(scratch)); err != nil { // the bytes that Sum has hashed
			return err
		}
	}
	return nil
}

// Begin returns the head of an empty tree, with a checkpoint. It is stored when the key of a log is created.
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

// Package tree proves the audit trail: every row is a leaf of one Merkle tree
// (RFC 6962), in the order of the sequence numbers. The tree follows the commits
// and never stands in their way. It signs how far it has grown (C2SP
// tlog-checkpoint), answers its tiles (C2SP tlog-tiles), and proofs that a row
// is in it (C2SP tlog-proof). docs/audit.md says how to verify them.
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

// ErrInconsistent says that the tree in the database is not the one that was
// signed, or that rows are not those that were written.
var ErrInconsistent = errors.New("the audit tree does not agree with what was signed")

const (
	// maxStep bounds the rows that one growth takes, so that neither memory nor its
	// transaction grow with what was missed.
	maxStep = 1 << 16
	// readPage is how many rows are read at once.
	readPage = 1000
	// askedEvery bounds how often somebody who waits makes the tree grow.
	askedEvery = 100 * time.Millisecond
	stepTime   = time.Minute
	endTime    = 2 * time.Second
)

// Store is what a tree needs of a database.
type Store interface {
	Reader
	// CosignedAuditTree answers the newest head that witnesses have cosigned.
	CosignedAuditTree(ctx context.Context) (audit.TreeHead, error)
	// AuditEnd answers the greatest sequence number among the rows.
	AuditEnd(ctx context.Context) (int64, error)
	// GrowAuditTree stores tiles and a head where the tree still has a size, and
	// answers whether it had. still, which may be nil, is asked once nobody else can
	// write, and a database that is another one has been told of.
	GrowAuditTree(ctx context.Context, size int64, tiles []audit.Tile, head audit.TreeHead, still func() bool) (bool, error)
}

// DefaultInterval is how far behind a checkpoint may be.
const DefaultInterval = 5 * time.Second

// Config of a Tree. Every field but Interval, Alone and Pruned is needed.
type Config struct {
	Store    Store
	Signer   *Signer
	Recent   *Recent
	Interval time.Duration // a checkpoint is at most so far behind; DefaultInterval
	Clock    func() time.Time
	Logger   *slog.Logger
	// Alarm is told why the tree does not grow any more.
	Alarm func(problem string)
	// RowAlarm is told of a row that the tree has and the database has not, or has as
	// another one.
	RowAlarm func(seq int64, problem string)
	// Alone says that no other process writes rows.
	Alone bool
	// Pruned answers up to which row the database may have none any more; nil: it has all.
	Pruned func(ctx context.Context) (int64, error)
}

// Tree grows behind the rows. It is safe for concurrent use.
type Tree struct {
	Config

	asked chan struct{} // holds a token where somebody waits
	scrub scrub         // of Run alone

	mu    sync.Mutex
	last  audit.TreeHead // that this process knows to be good
	err   error          // of the last growth
	grown chan struct{}  // closed and replaced with each growth, and each that failed
}

// New makes a tree. Run makes it grow.
func New(c Config) *Tree {
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	return &Tree{Config: c, asked: make(chan struct{}, 1), grown: make(chan struct{})}
}

// Key is what verifies the checkpoints.
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

// fail says that a growth failed. Whoever waits is told.
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

// wake needs the lock.
func (t *Tree) wake() {
	close(t.grown)
	t.grown = make(chan struct{})
}

// Failing answers why the tree does not grow, nil where it does.
func (t *Tree) Failing() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Size is how many rows the tree has, as far as this process knows.
func (t *Tree) Size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last.Size
}

// Grown is closed once the tree grows, or fails to.
func (t *Tree) Grown() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.grown
}

// grow takes the rows that the tree has not, and answers whether there may be more.
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
		return false, fmt.Errorf("%w: the rows from %d on are missing, up to %d", ErrInconsistent, end+1, head.Size)
	}
	if end == head.Size {
		t.settle(head)
		return false, nil
	}
	last := min(end, head.Size+maxStep)
	lost := t.Recent.lost()
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
	done, err := t.Store.GrowAuditTree(ctx, head.Size, g.tiles(), next, func() bool { return t.Recent.lost() == lost })
	if err != nil || !done {
		return true, err // another replica was first, or the leaves are of rows that are gone
	}
	t.settle(next)
	return last < end, nil
}

// tell says which rows the first growth of a process takes as the database has them:
// after a stop in order there is none.
func (t *Tree) tell(size, stored int64) {
	t.mu.Lock()
	first := t.last.Size == 0
	t.mu.Unlock()
	if t.Alone && first && size > 0 && stored > 0 {
		t.Logger.Warn("rows of the audit trail from before this start were in no checkpoint, as after a process that was killed; they are signed as the database has them", "rows", stored, "after", size)
	}
}

// settle remembers a head that is good.
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

// check refuses to go on from a head that this key server has not signed, that is not
// of the tiles, or that does not follow from what this process has seen.
func (t *Tree) check(ctx context.Context, head audit.TreeHead, g *growth) error {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	if head.Size == last.Size && head.Root == last.Root && head.Size > 0 {
		return t.checkRoot(ctx, head, g)
	}
	if head.Size < last.Size {
		return fmt.Errorf("%w: it has %d rows, and had %d", ErrInconsistent, head.Size, last.Size)
	}
	if len(head.Checkpoint) == 0 { // there was one, of no rows at least (Begin)
		return fmt.Errorf("%w: its checkpoint was taken out of the database", ErrInconsistent)
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
		err = fmt.Errorf("%w: its hashes are not those of the checkpoint of %d rows", ErrInconsistent, head.Size)
	}
	return err
}

// addRows adds the rows up to one, in their order: those that this process has
// written as it wrote them, the others, which it counts, from the database.
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

// addStored adds rows that the database has, which have to be whole.
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
			return fmt.Errorf("%w: the row %d is not as it was written", ErrInconsistent, row.Seq)
		}
		if err := g.add(tlog.RecordHash(scratch)); err != nil { // the bytes that Sum has hashed
			return err
		}
	}
	return nil
}

// Begin is the head of a tree without rows. Whoever makes the key of a log stores it.
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

// Open verifies a checkpoint by the key of its log and answers its size and root.
func Open(checkpoint []byte, key note.Verifier) (audit.TreeHead, error) {
	c, _, _, err := log.ParseCheckpoint(checkpoint, key.Name(), key)
	if err != nil {
		return audit.TreeHead{}, fmt.Errorf("the checkpoint is not one of %s, or was not signed by its key: %w", key.Name(), err)
	}
	if c.Size > maxSize || len(c.Hash) != tlog.HashSize {
		return audit.TreeHead{}, errors.New("the checkpoint has a size or a hash that no tree has")
	}
	return audit.TreeHead{Size: int64(c.Size), Root: tlog.Hash(c.Hash), Checkpoint: bytes.Clone(checkpoint)}, nil
}

// maxSize bounds what is taken for the size of a tree.
const maxSize = 1 << 53

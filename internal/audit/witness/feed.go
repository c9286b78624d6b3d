package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// FeedStore is the part of a database that a Feed uses.
type FeedStore interface {
	AuditTree(ctx context.Context) (audit.TreeHead, error)
	CosignedAuditTree(ctx context.Context) (audit.TreeHead, error)
	// CosignAuditTree adds cosignatures to a stored tree head. The function add gets the stored checkpoint. It returns the
	// checkpoint with all cosignatures, and whether they are a quorum.
	CosignAuditTree(ctx context.Context, head audit.TreeHead, add func(stored []byte) (checkpoint []byte, quorum bool, err error)) error
}

// Grower is the audit tree of this key server.
type Grower interface {
	// Grown returns a channel that is closed when the tree grows.
	Grown() <-chan struct{}
	// Prove proves that the tree of the given size continues an earlier tree.
	Prove(ctx context.Context, size, old int64) (tlog.TreeProof, error)
}

// FeedConfig is the configuration of a Feed. All fields are required except Peers.
type FeedConfig struct {
	Store    FeedStore
	Tree     Grower
	Key      note.Verifier // of the audit tree of this key server
	Remotes  []Remote      // witnesses that are always used
	Quorum   int           // the number of cosignatures of a quorum
	Interval time.Duration // between two checkpoints
	Clock    func() time.Time
	Logger   *slog.Logger
	// Alarm is called if a witness has cosigned a tree that the database does not continue, or more rows than it has.
	Alarm func(problem string)
	// Peers returns the peers that are currently witnesses; nil: none.
	Peers func(ctx context.Context) ([]Remote, error)
}

// Feed sends the tree's checkpoints to each witness independently, and stores
// their cosignatures.
type Feed struct {
	FeedConfig

	mu    sync.Mutex
	noted time.Time        // when a checkpoint was last logged
	heads []audit.TreeHead // the latest heads, with their cosignatures
	all   map[string]note.Verifier
}

// maxHeads is the maximum number of tree heads that wait for the cosignatures of slow witnesses.
const maxHeads = 16

// NewFeed returns a feed. Run sends the checkpoints.
func NewFeed(c FeedConfig) *Feed {
	return &Feed{FeedConfig: c, all: map[string]note.Verifier{}}
}

// Run sends checkpoints until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	var senders sync.WaitGroup
	defer senders.Wait()
	running := map[string]context.CancelFunc{}
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	for {
		f.note(ctx)
		wanted := f.Remotes
		if f.Peers != nil {
			peers, err := f.Peers(ctx)
			if err != nil && ctx.Err() == nil {
				f.Logger.Warn("the list of peers that are witnesses could not be read", "error", err)
			}
			wanted = append(wanted[:len(wanted):len(wanted)], peers...)
		}
		now := map[string]bool{}
		for _, r := range wanted[:min(len(wanted), MaxWitnesses)] {
			name := id(r.Verifier())
			now[name] = true
			if running[name] != nil {
				continue
			}
			one, stop := context.WithCancel(ctx)
			running[name] = stop
			f.take(name, r.Verifier())
			senders.Go(func() { f.send(one, r) })
		}
		for name, stop := range running {
			if !now[name] {
				stop()
				delete(running, name)
				f.take(name, nil)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(f.Interval):
		}
	}
}

// noteEvery is the interval in which the newest checkpoint is written to the process log. An attacker with
// write access to the database may have no access to that log.
const noteEvery = time.Hour

func (f *Feed) note(ctx context.Context) {
	if f.Clock().Sub(f.noted) < noteEvery {
		return
	}
	if head, err := f.Store.AuditTree(ctx); err == nil && head.Size > 0 {
		f.noted = f.Clock()
		f.Logger.Info("the newest checkpoint of the audit log", "checkpoint", string(head.Checkpoint))
	}
}

func id(v note.Verifier) string { return fmt.Sprintf("%s+%08x", v.Name(), v.KeyHash()) }

func (f *Feed) take(name string, v note.Verifier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v == nil {
		delete(f.all, name)
		return
	}
	f.all[name] = v
}

// maxPause is the longest pause after a witness has failed to cosign.
const maxPause = time.Minute

// send sends each new checkpoint to one witness. While the witness fails, the pauses double up to maxPause.
func (f *Feed) send(ctx context.Context, to Remote) {
	var known int64 // the size that the witness has cosigned, according to its last response
	pause := time.Duration(0)
	logger := f.Logger.With("witness", to.Verifier().Name())
	failing := false
	for {
		grown := f.Tree.Grown()
		var err error
		if known, err = f.sendNewest(ctx, to, known); err != nil && ctx.Err() == nil {
			pause = min(max(2*pause, f.Interval), maxPause)
			if !failing {
				logger.Warn("a witness does not cosign the audit tree; trying again", "error", err)
			}
			failing = true
		} else if err == nil {
			if pause = 0; failing {
				logger.Info("the witness cosigns the audit tree again")
			}
			failing = false
		}
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		if pause > 0 {
			continue
		}
		look := time.NewTimer(f.Interval)
		select {
		case <-ctx.Done():
		case <-grown:
		case <-look.C: // another replica may have added rows to the tree
		}
		look.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// sendNewest sends the newest checkpoint, unless the witness has cosigned it. It returns the size that the witness has
// cosigned.
func (f *Feed) sendNewest(ctx context.Context, to Remote, known int64) (int64, error) {
	head, err := f.Store.AuditTree(ctx)
	if err != nil || head.Size == 0 || signedBy(head.Checkpoint, to.Verifier()) {
		return known, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if !signedBy(head.Checkpoint, f.Key) { // package tree and the witness raise an alarm in this case
		to.ReportConflict(ctx, Request{Old: known, Checkpoint: head.Checkpoint})
		return known, errors.New("the newest checkpoint in the database was not signed by this key server")
	}
	for range 2 {
		var lines []byte
		if known > head.Size {
			if err := f.behind(ctx, to, known); err != nil {
				return 0, err // 0: request the size again, because the peer may have been registered again
			}
			return known, nil
		}
		request := Request{Old: known, Checkpoint: head.Checkpoint}
		if known > 0 && known < head.Size {
			if request.Proof, err = f.Tree.Prove(ctx, head.Size, known); err != nil {
				return known, err
			}
		}
		lines, err = to.AddCheckpoint(ctx, request)
		var stale keyserver.StaleCheckpointError
		switch {
		case errors.As(err, &stale):
			known = stale.Size
			continue
		case fault.CodeOf(err) == fault.CheckpointInconsistent:
			f.Alarm(fmt.Sprintf("the witness %s has cosigned a tree of %d rows that this tree does not continue: rows were changed, or the database was copied or restored", to.Verifier().Name(), known))
			return known, err
		case err != nil:
			return known, err
		}
		return head.Size, f.keep(ctx, head, lines, to.Verifier())
	}
	return known, err
}

// behind handles a witness that has cosigned more rows than the tree in the database has.
func (f *Feed) behind(ctx context.Context, to Remote, known int64) error {
	head, err := f.Store.AuditTree(ctx)
	if err != nil || head.Size >= known { // another replica has added rows to the tree
		return err
	}
	f.Alarm(fmt.Sprintf("the witness %s has cosigned %d rows, but the audit tree has %d: the database was restored from a backup, or rows were removed", to.Verifier().Name(), known, head.Size))
	to.ReportConflict(ctx, Request{Old: known, Checkpoint: head.Checkpoint})
	return fmt.Errorf("it has cosigned %d rows, but the audit tree has %d", known, head.Size)
}

// keep verifies a cosignature and adds it to a tree head.
func (f *Feed) keep(ctx context.Context, head audit.TreeHead, lines []byte, by note.Verifier) error {
	line, err := cosignatureOf(head.Checkpoint, lines, by)
	if err != nil {
		return err
	}
	f.mu.Lock()
	at := -1
	for i := range f.heads {
		if f.heads[i].Size == head.Size && f.heads[i].Root == head.Root {
			at = i
		}
	}
	if at < 0 {
		f.heads = append(f.heads, head)
		f.heads = f.heads[max(0, len(f.heads)-maxHeads):]
		at = len(f.heads) - 1
	}
	f.heads[at].Checkpoint = merge(f.heads[at].Checkpoint, line)
	head = f.heads[at]
	verifiers := make([]note.Verifier, 0, len(f.all))
	for _, v := range f.all {
		verifiers = append(verifiers, v)
	}
	f.mu.Unlock()
	return f.Store.CosignAuditTree(ctx, head, func(stored []byte) ([]byte, bool, error) {
		all := merge(stored, signatures(head.Checkpoint))
		return all, countSigned(all, verifiers) >= max(f.Quorum, 1), nil
	})
}

// Cosigned returns how many rows a quorum of witnesses has cosigned. If no quorum is required, it returns the largest
// int64.
func (f *Feed) Cosigned(ctx context.Context) (int64, error) {
	if f.Quorum == 0 {
		return 1<<63 - 1, nil
	}
	head, err := f.Store.CosignedAuditTree(ctx)
	return head.Size, err
}

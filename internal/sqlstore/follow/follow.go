// Package follow carries the changes that other processes commit to a shared
// database into this one, and knows how current this process is.
package follow

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// MaxStaleness is how far behind the database a process may be and still
// answer (contract 4.5).
const MaxStaleness = time.Second

// Pace of the follower. The poll is the net under notifications, which a
// broken connection loses; a few of them fit into MaxStaleness.
const (
	poll        = MaxStaleness / 4
	pageTimeout = 2 * time.Second
	minBackoff  = 50 * time.Millisecond
	maxBackoff  = 2 * time.Second
)

// retryAfter is when a caller may ask again whether this process is current.
const retryAfter = time.Second

// Source is what is followed, and who is told.
type Source struct {
	// Head answers the number of the last committed change.
	Head func(ctx context.Context) (int64, error)
	// Page reads the changes after one, at most PageLimit of them.
	Page      func(ctx context.Context, after int64, limit int) (keyserver.ChangePage, error)
	PageLimit int
	// Listen opens a connection on which other processes announce changes.
	Listen func(ctx context.Context) (Listener, error)
	// Notify delivers changes to the hooks; nil says that anything may be different.
	Notify func([]keyserver.Change)
	Clock  func() time.Time
	Logger *slog.Logger
}

// Listener wakes the follower when another process announces changes.
type Listener interface {
	// Wait returns when there may be changes, at the latest after atMost.
	Wait(ctx context.Context, atMost time.Duration) error
	Close()
}

// Follower follows a Source until it is stopped.
type Follower struct {
	source Source
	cancel context.CancelFunc
	done   chan struct{}

	// looking is held while somebody reads changes and delivers them, so that
	// hooks get them in order. It is a channel for the sake of contexts.
	looking chan struct{}

	mu        sync.Mutex
	cursor    int64     // all changes up to here went to the hooks
	confirmed time.Time // when the last look that succeeded began
}

// Start follows what is committed from now on.
func Start(ctx context.Context, s Source) (*Follower, error) {
	began := s.Clock()
	head, err := s.Head(ctx)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Follower{
		source: s, cancel: cancel, done: make(chan struct{}),
		looking: make(chan struct{}, 1), cursor: head, confirmed: began,
	}
	go func() {
		defer close(f.done)
		f.run(running)
	}()
	return f, nil
}

// Stop ends following and waits for that.
func (f *Follower) Stop() {
	f.cancel()
	<-f.done
}

// run listens until ctx ends, on a new connection after each that fails.
func (f *Follower) run(ctx context.Context) {
	backoff := minBackoff
	failing := false
	for ctx.Err() == nil {
		err := f.listenOnce(ctx, func() {
			if failing {
				f.source.Logger.Info("following the database's changes again")
			}
			backoff, failing = minBackoff, false
		})
		if ctx.Err() != nil {
			return
		}
		if !failing {
			failing = true
			f.source.Logger.Warn("lost the database's changes, trying again", "error", err)
		}
		pause := backoff/2 + rand.N(backoff) //nolint:gosec // jitter, not a secret
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (f *Follower) listenOnce(ctx context.Context, succeeded func()) error {
	l, err := f.source.Listen(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		// Looking comes after LISTEN, so that nothing falls in between.
		if err := f.look(ctx); err != nil {
			return err
		}
		succeeded()
		if err := l.Wait(ctx, poll); err != nil {
			return err
		}
	}
}

// Current answers nil if the hooks have had every change up to MaxStaleness ago.
// Otherwise it looks once, and refuses with NOT_CURRENT if that fails.
func (f *Follower) Current(ctx context.Context) error {
	if f.isCurrent() {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, MaxStaleness)
	defer cancel()
	err := f.look(looking)
	if err == nil && f.isCurrent() {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fault.Temporary(fault.NotCurrent, fault.ScopeProcess, retryAfter,
		"this replica cannot confirm that what it knows is current; try again or ask another").Because(err)
}

func (f *Follower) isCurrent() bool {
	f.mu.Lock()
	confirmed := f.confirmed
	f.mu.Unlock()
	return f.source.Clock().Sub(confirmed) < MaxStaleness
}

// look delivers all changes after the cursor. This process is then as current
// as the database was when the look began. Callers that come together share
// one look.
func (f *Follower) look(ctx context.Context) error {
	arrived := f.source.Clock()
	select {
	case f.looking <- struct{}{}:
		defer func() { <-f.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.confirmedSince(arrived) {
		return nil
	}
	for {
		began := f.source.Clock()
		f.mu.Lock()
		cursor := f.cursor
		f.mu.Unlock()
		page, err := f.page(ctx, cursor)
		if err != nil {
			return err
		}
		switch {
		case page.Reset:
			f.source.Notify(nil)
		case len(page.Changes) > 0:
			f.source.Notify(page.Changes)
		}
		f.mu.Lock()
		f.cursor = page.Cursor
		more := len(page.Changes) == f.source.PageLimit
		if !more {
			f.confirmed = began
		}
		f.mu.Unlock()
		if !more {
			return nil
		}
	}
}

// page bounds one read, so that a connection that hangs does not hold up
// everybody who waits for the look.
func (f *Follower) page(ctx context.Context, cursor int64) (keyserver.ChangePage, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return f.source.Page(ctx, cursor, f.source.PageLimit)
}

func (f *Follower) confirmedSince(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.confirmed.After(t)
}

// Committed delivers the changes of a commit of this process, unless a look
// was faster. It waits for a look under way, so that hooks get changes in
// order; only where that takes too long, or changes of another process lie in
// between, a look delivers them a second time.
func (f *Follower) Committed(changes []keyserver.Change) {
	inOrder := false
	patience := time.NewTimer(MaxStaleness)
	defer patience.Stop()
	select {
	case f.looking <- struct{}{}:
		inOrder = true
		defer func() { <-f.looking }()
	case <-patience.C:
	}
	first, last := changes[0].Seq, changes[len(changes)-1].Seq
	f.mu.Lock()
	cursor := f.cursor
	f.mu.Unlock()
	if last <= cursor {
		return
	}
	f.source.Notify(changes)
	if inOrder && first == cursor+1 {
		f.mu.Lock()
		f.cursor = last
		f.mu.Unlock()
	}
}

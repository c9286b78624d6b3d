package sqlstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Pace of the follower. The poll is the net under notifications, which a
// broken connection loses; a few of them fit into MaxStaleness.
const (
	followPoll       = MaxStaleness / 4
	followTimeout    = 2 * time.Second
	followMinBackoff = 50 * time.Millisecond
	followMaxBackoff = 2 * time.Second
)

// listener wakes the follower when another process announces changes.
type listener interface {
	// wait returns when there may be changes, at the latest after atMost.
	wait(ctx context.Context, atMost time.Duration) error
	close()
}

// follower carries the changes that other processes commit to the hooks of
// this one, and knows how current this process is.
type follower struct {
	store  *Store
	listen func(ctx context.Context) (listener, error)
	cancel context.CancelFunc
	done   chan struct{}

	// looking is held while somebody reads changes and delivers them, so that
	// hooks get them in order. It is a channel for the sake of contexts.
	looking chan struct{}

	mu        sync.Mutex
	cursor    int64     // all changes up to here went to the hooks
	confirmed time.Time // when the last look that succeeded began
}

func startFollower(ctx context.Context, s *Store, listen func(ctx context.Context) (listener, error)) (*follower, error) {
	began := s.cfg.Clock()
	head, err := s.ChangeHead(ctx)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &follower{
		store: s, listen: listen, cancel: cancel, done: make(chan struct{}),
		looking: make(chan struct{}, 1), cursor: head, confirmed: began,
	}
	go func() {
		defer close(f.done)
		f.run(running)
	}()
	return f, nil
}

func (f *follower) stop() {
	f.cancel()
	<-f.done
}

// run listens until ctx ends, on a new connection after each that fails.
func (f *follower) run(ctx context.Context) {
	backoff := followMinBackoff
	failing := false
	for ctx.Err() == nil {
		err := f.listenOnce(ctx, func() {
			if failing {
				f.store.cfg.Logger.Info("following the database's changes again")
			}
			backoff, failing = followMinBackoff, false
		})
		if ctx.Err() != nil {
			return
		}
		if !failing {
			failing = true
			f.store.cfg.Logger.Warn("lost the database's changes, trying again", "error", err)
		}
		pause := backoff/2 + rand.N(backoff) //nolint:gosec // jitter, not a secret
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		backoff = min(2*backoff, followMaxBackoff)
	}
}

func (f *follower) listenOnce(ctx context.Context, succeeded func()) error {
	l, err := f.listen(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	for {
		// Looking comes after LISTEN, so that nothing falls in between.
		if err := f.look(ctx); err != nil {
			return err
		}
		succeeded()
		if err := l.wait(ctx, followPoll); err != nil {
			return err
		}
	}
}

// current is Store.Current.
func (f *follower) current(ctx context.Context) error {
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
	return fault.Temporary(fault.NotCurrent, fault.ScopeProcess, retryUnavailable,
		"this replica cannot confirm that what it knows is current; try again or ask another").Because(err)
}

func (f *follower) isCurrent() bool {
	f.mu.Lock()
	confirmed := f.confirmed
	f.mu.Unlock()
	return f.store.cfg.Clock().Sub(confirmed) < MaxStaleness
}

// look delivers all changes after the cursor. This process is then as current
// as the database was when the look began. Callers that come together share
// one look.
func (f *follower) look(ctx context.Context) error {
	arrived := f.store.cfg.Clock()
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
		began := f.store.cfg.Clock()
		f.mu.Lock()
		cursor := f.cursor
		f.mu.Unlock()
		page, err := f.page(ctx, cursor)
		if err != nil {
			return err
		}
		switch {
		case page.Reset:
			f.store.notify(nil)
		case len(page.Changes) > 0:
			f.store.notify(page.Changes)
		}
		f.mu.Lock()
		f.cursor = page.Cursor
		more := len(page.Changes) == maxChangePage
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
func (f *follower) page(ctx context.Context, cursor int64) (keyserver.ChangePage, error) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	return f.store.Changes(ctx, cursor, maxChangePage)
}

func (f *follower) confirmedSince(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.confirmed.After(t)
}

// committed delivers the changes of a commit of this process, unless a look
// was faster. It waits for a look under way, so that hooks get changes in
// order; only where that takes too long, or changes of another process lie in
// between, a look delivers them a second time.
func (f *follower) committed(changes []keyserver.Change) {
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
	f.store.notify(changes)
	if inOrder && first == cursor+1 {
		f.mu.Lock()
		f.cursor = last
		f.mu.Unlock()
	}
}

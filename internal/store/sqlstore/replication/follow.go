// Package replication delivers the changes that other processes commit to a shared database
// to this process, and tracks up to which time this process has received all changes.
package replication

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MaxStaleness is how old the data of a process may be while it serves requests (contract
// 4.5).
const MaxStaleness = time.Second

// Intervals and time limits of the follower. It polls in addition to notifications, because a
// broken connection loses notifications.
const (
	poll         = MaxStaleness / 4
	pageTimeout  = 2 * time.Second
	stateTimeout = MaxStaleness // an older state would be useless
	// again is the minimum pause between attempts to connect while the database does not respond. The maximum is twice
	// as long. The pause does not grow, because the end of a long outage has to be noticed as fast as the end of a
	// short one. A refused attempt costs nothing.
	again = 100 * time.Millisecond
)

// retryAfter is the time after which a caller may retry after NOT_CURRENT.
const retryAfter = time.Second

// State is the state of a database. The follower compares it with the state before.
type State struct {
	// Incarnation identifies the running database: it changes at each start, and when a
	// standby is promoted.
	Incarnation string
	Changes     int64 // number of the last committed change
	Audit       int64 // number of the last audit row in the database
}

// isBehind reports whether s lacks changes or audit rows that the earlier state (was) had.
func (s State) isBehind(was State) bool { return s.Changes < was.Changes || s.Audit < was.Audit }

// Source is the database that a Follower follows, with the functions that read and deliver its changes.
type Source struct {
	// State reads the state of the database in one statement.
	State func(ctx context.Context) (State, error)
	// Reset is called before Notify if the database was restarted or replaced, or if changes or audit rows are missing.
	Reset func(was, now State)
	// Page reads the changes after a number, at most PageLimit of them.
	Page      func(ctx context.Context, after int64, limit int) (keyserver.ChangePage, error)
	PageLimit int
	// Listen opens a connection on which other processes announce changes.
	Listen func(ctx context.Context) (Listener, error)
	// Notify delivers changes to the hooks. nil means that all cached data may be outdated.
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

// Follower reads and delivers the changes of a Source until Stop.
type Follower struct {
	source Source
	cancel context.CancelFunc
	done   chan struct{}

	// looking is a lock: it has an element while a goroutine reads and delivers changes. So
	// hooks get changes in order. It is a channel so that a context can end the wait for it.
	looking chan struct{}

	mu        sync.Mutex
	known     State     // the state that look read last
	cursor    int64     // all changes up to this number were delivered
	confirmed time.Time // when the last successful call of look began
}

// Start starts a Follower. It delivers the changes after the current state.
func Start(ctx context.Context, s Source) (*Follower, error) {
	began := s.Clock()
	state, err := s.State(ctx)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Follower{
		source: s, cancel: cancel, done: make(chan struct{}),
		looking: make(chan struct{}, 1), known: state, cursor: state.Changes, confirmed: began,
	}
	go func() {
		defer close(f.done)
		f.run(running)
	}()
	return f, nil
}

// Stop stops the goroutine of the Follower and waits for its end.
func (f *Follower) Stop() {
	f.cancel()
	<-f.done
}

// run listens until ctx ends, and opens a new connection after each failure.
func (f *Follower) run(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		err := f.listenOnce(ctx, func() {
			if failing {
				f.source.Logger.Info("following the changes of the database again")
			}
			failing = false
		})
		if ctx.Err() != nil {
			return
		}
		if !failing {
			failing = true
			f.source.Logger.Warn("cannot follow the changes of the database; trying again", "error", err)
		}
		pause := again + rand.N(again) //nolint:gosec // jitter, not a secret
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (f *Follower) listenOnce(ctx context.Context, succeeded func()) error {
	l, err := f.source.Listen(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		// look is called after LISTEN: an earlier call could miss changes before LISTEN.
		if err := f.look(ctx); err != nil {
			return err
		}
		succeeded()
		if err := l.Wait(ctx, poll); err != nil {
			return err
		}
	}
}

// Current returns nil if the hooks have received every change that is older than MaxStaleness. Otherwise it calls look
// once, and returns NOT_CURRENT if that fails.
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
	return notCurrent(err)
}

func notCurrent(cause error) error {
	return fault.Temporary(fault.NotCurrent, fault.ScopeProcess, retryAfter,
		"this replica cannot confirm that its data is current; try again or use another replica").Because(cause)
}

func (f *Follower) isCurrent() bool { return f.source.Clock().Sub(f.Confirmed()) < MaxStaleness }

// Confirmed returns the time up to which the hooks have received every change.
func (f *Follower) Confirmed() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.confirmed
}

// look reads and delivers all changes after the cursor. On success, the hooks have received every change up to the time
// at which look began. Concurrent callers share one read.
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
		more, err := f.step(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// step delivers a page of changes, and reports whether there may be more. The database may
// be replaced at any time. Therefore step checks the state of the database before and
// after it reads the page.
func (f *Follower) step(ctx context.Context) (more bool, err error) {
	began := f.source.Clock()
	now, reset, err := f.state(ctx)
	if err != nil || reset {
		return reset, err
	}
	f.mu.Lock()
	cursor := f.cursor
	f.mu.Unlock()
	if now.Changes == cursor {
		f.reached(cursor, began)
		return false, nil
	}
	page, err := f.page(ctx, cursor)
	if err != nil {
		return false, err
	}
	if _, reset, err = f.state(ctx); err != nil || reset {
		return reset, err
	}
	switch {
	case page.Reset:
		f.source.Notify(nil)
	case len(page.Changes) > 0:
		f.source.Notify(page.Changes)
	}
	if more = len(page.Changes) == f.source.PageLimit; more {
		began = time.Time{}
	}
	f.reached(page.Cursor, began)
	return more, nil
}

// state reads the state of the database. If the database was restarted or replaced, or if changes
// or audit rows are missing, it resets the follower to that state and returns reset.
func (f *Follower) state(ctx context.Context) (now State, reset bool, err error) {
	// The cancellation of the caller's context must not close the connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateTimeout)
	defer cancel()
	if now, err = f.source.State(ctx); err != nil {
		return now, false, err
	}
	f.mu.Lock()
	was := f.known
	was.Changes = max(was.Changes, f.cursor)
	f.mu.Unlock()
	if reset = now.Incarnation != was.Incarnation || now.isBehind(was); reset {
		f.source.Reset(was, now)
		f.source.Notify(nil)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = now
	if reset {
		f.cursor = now.Changes
	}
	return now, reset, nil
}

// reached records the cursor, and the time up to which all changes are delivered; the zero time means unknown.
func (f *Follower) reached(cursor int64, confirmed time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cursor = cursor
	if !confirmed.IsZero() {
		f.confirmed = confirmed
	}
}

// Knows reports whether the incarnation is the one that the follower read last.
func (f *Follower) Knows(incarnation string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known.Incarnation == incarnation
}

// MarkReplaced is called when a caller finds another incarnation (Knows). This process is then
// not current until look succeeds again. MarkReplaced returns the fault for the caller.
func (f *Follower) MarkReplaced() error {
	f.mu.Lock()
	f.confirmed = time.Time{}
	f.mu.Unlock()
	return notCurrent(errors.New("the database was restarted, or another one has replaced it"))
}

// page reads one page of changes. It has a time limit, so that a hanging connection does not
// block all callers that wait for look.
func (f *Follower) page(ctx context.Context, cursor int64) (keyserver.ChangePage, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pageTimeout)
	defer cancel()
	return f.source.Page(ctx, cursor, f.source.PageLimit)
}

func (f *Follower) confirmedSince(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.confirmed.After(t)
}

// Committed delivers the changes of a commit of this process. To keep the order, it waits
// for a running call of look, at most MaxStaleness. look may deliver the same changes
// again, for example if changes of another process precede them.
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
	// Notify even if the cursor is higher: a database that lost changes assigns their numbers again.
	f.source.Notify(changes)
	if inOrder && first == cursor+1 {
		f.mu.Lock()
		f.cursor = last
		f.mu.Unlock()
	}
}

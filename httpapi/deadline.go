package httpapi

import (
	"context"
	"sync"
	"time"
)

// lazyDeadline is a context with a deadline that starts its timer only at the first call of Done. Most requests never
// call Done, and context.WithDeadline allocates seven objects for each request. A lazyDeadline is safe for concurrent
// use.
type lazyDeadline struct {
	parent context.Context //nolint:containedctx // this is a context
	at     time.Time       // not after the deadline of parent

	mu    sync.Mutex
	timed context.Context    //nolint:containedctx // parent with the deadline; nil before the first call of Done
	stop  context.CancelFunc // of timed
	ended bool
}

func (l *lazyDeadline) Deadline() (time.Time, bool) { return l.at, true }

func (l *lazyDeadline) Done() <-chan struct{} { return l.start().Done() }

func (l *lazyDeadline) Err() error {
	l.mu.Lock()
	open := l.timed == nil && !l.ended && time.Now().Before(l.at) //nolint:forbidigo // the clock of the timer
	l.mu.Unlock()
	if open {
		return l.parent.Err()
	}
	return l.start().Err() // the error stays the same even if parent ends later
}

// Value implements context.Context. Package context also calls it to find the context timed, to which it attaches child
// contexts.
func (l *lazyDeadline) Value(key any) any {
	l.mu.Lock()
	timed := l.timed
	l.mu.Unlock()
	if timed == nil {
		return l.parent.Value(key)
	}
	return timed.Value(key)
}

func (l *lazyDeadline) start() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil {
		l.timed, l.stop = context.WithDeadline(l.parent, l.at)
	}
	if l.ended {
		l.stop()
	}
	return l.timed
}

func (l *lazyDeadline) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.stop != nil {
		l.stop()
	}
}

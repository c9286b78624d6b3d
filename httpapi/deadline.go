package httpapi

import (
	"context"
	"sync"
	"time"
)

// lazyDeadline is a context that ends like one of context.WithDeadline, but starts its timer at the first call of Done.
// Most requests never call Done, and context.WithDeadline allocates seven objects for each request. A lazyDeadline is
// safe for concurrent use.
type lazyDeadline struct {
	parent context.Context //nolint:containedctx // this is a context
	at     time.Time       // not after the deadline of parent

	mu    sync.Mutex
	timed context.Context    //nolint:containedctx // parent with the deadline; nil before the first call of Done
	stop  context.CancelFunc // of timed
}

// Deadline implements context.Context.
func (l *lazyDeadline) Deadline() (time.Time, bool) { return l.at, true }

// Done implements context.Context.
func (l *lazyDeadline) Done() <-chan struct{} { return l.start().Done() }

// Err implements context.Context.
func (l *lazyDeadline) Err() error {
	if err := l.current().Err(); err != nil || time.Now().Before(l.at) { //nolint:forbidigo // the clock of the timer
		return err
	}
	return l.start().Err() // the result stays the same if parent ends later
}

// Value implements context.Context. Package context also uses it to find the timed context, to which it attaches
// children.
func (l *lazyDeadline) Value(key any) any { return l.current().Value(key) }

// start returns the context with the deadline.
func (l *lazyDeadline) start() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil {
		l.timed, l.stop = context.WithDeadline(l.parent, l.at)
	}
	return l.timed
}

// current returns the context with the deadline if it is started, otherwise the parent.
func (l *lazyDeadline) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil {
		return l.parent
	}
	return l.timed
}

// end stops the timer. Without a timer, the context ends with its parent.
func (l *lazyDeadline) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		l.stop()
	}
}

// Package singleflight lets callers that want the same thing at the same moment share
// one piece of work, without sharing each other's fate.
package singleflight

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sync/singleflight"
)

// Group shares work by key. The zero value is ready, and safe for concurrent use.
type Group[T any] struct{ group singleflight.Group }

// landing is how a piece of work ended.
type landing[T any] struct {
	value T
	err   error
	// abandoned: it failed under a context that had ended, which says nothing
	// to anybody else.
	abandoned bool
	panicked  *panicked
	// exited: work ended its goroutine (runtime.Goexit), as a test does that
	// fails.
	exited bool
}

// panicked is what a piece of work panicked with, and where.
type panicked struct {
	value any
	stack []byte
}

// Error implements error, so that who recovers it tells it like any other.
func (p *panicked) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// Unwrap answers the value of the panic where that is an error.
func (p *panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// Do answers what work answers. Whoever comes with the same key while it runs
// waits for it instead of running it again.
//
// work runs for whoever came first, who waits for its end even where his
// context ends before: work that minds that context ends soon, and nothing runs
// on for nobody. Where it failed because of that, the next in the queue
// runs it again under his own. Everybody else waits no longer than his context
// lasts. A panic reaches all who wait, each in his own goroutine, and so does the
// end of a goroutine.
func (g *Group[T]) Do(ctx context.Context, key string, work func() (T, error)) (T, error) {
	for {
		begun := make(chan struct{})
		landed := g.group.DoChan(key, func() (any, error) {
			close(begun)
			l := landing[T]{exited: true}
			ended := make(chan struct{})
			go func() { // of its own, because singleflight answers nobody when its own ends
				defer close(ended)
				run(ctx, work, &l)
			}()
			<-ended
			return l, nil
		})
		var result singleflight.Result
		select {
		case result = <-landed:
		case <-ctx.Done():
			select {
			case <-begun: // the work is ours
				result = <-landed
			default: // somebody else's; or ours, and then it sees the same context first
				var none T
				return none, ctx.Err()
			}
		}
		l := result.Val.(landing[T]) //nolint:errcheck // the work above answers nothing else
		switch {
		case l.exited:
			runtime.Goexit()
		case l.panicked != nil:
			panic(l.panicked)
		case l.abandoned && ctx.Err() == nil:
			continue
		default:
			return l.value, l.err
		}
	}
}

// run does the work and notes how it ended; exited is true until it has.
func run[T any](ctx context.Context, work func() (T, error), l *landing[T]) {
	defer func() {
		if p := recover(); p != nil {
			*l = landing[T]{panicked: &panicked{p, debug.Stack()}}
		}
	}()
	if err := ctx.Err(); err != nil {
		*l = landing[T]{err: err, abandoned: true}
		return
	}
	v, err := work()
	*l = landing[T]{value: v, err: err, abandoned: err != nil && ctx.Err() != nil}
}

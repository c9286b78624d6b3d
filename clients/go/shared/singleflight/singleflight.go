// Package singleflight lets concurrent callers with the same key share one run of work. A
// caller does not fail because the context of another caller ends.
package singleflight

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sync/singleflight"
)

// Group shares work by key. The zero value is ready for use. It is safe for concurrent
// use.
type Group[T any] struct{ group singleflight.Group }

// outcome is the result of a run of work.
type outcome[T any] struct {
	value T
	err   error
	// abandoned reports that work failed after the context of its caller had ended, so the error does not apply to
	// other callers.
	abandoned bool
	panicked  *panicked
	// exited reports that work ended its goroutine (runtime.Goexit), as a failed test does.
	exited bool
}

// panicked is the value and the stack of a panic in work.
type panicked struct {
	value any
	stack []byte
}

// Error implements error, so that a recovered value can be logged like any other error.
func (p *panicked) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// Unwrap returns the value of the panic if that is an error.
func (p *panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// Do returns the result of work. Callers with the same key that arrive while work runs wait for its result instead of
// running it again.
//
// work runs for the first caller. This caller waits for the end of work even if ctx ends first. So work that obeys ctx
// ends soon, and never runs without a caller. If work fails because ctx ended, the next caller runs its own work. All
// other callers wait at most until their own context ends. A panic or runtime.Goexit of work is repeated in the
// goroutine of each waiting caller.
func (g *Group[T]) Do(ctx context.Context, key string, work func() (T, error)) (T, error) {
	for {
		begun := make(chan struct{})
		landed := g.group.DoChan(key, func() (any, error) {
			close(begun)
			l := outcome[T]{exited: true}
			ended := make(chan struct{})
			go func() { // separate goroutine, because singleflight returns no result if its own goroutine exits
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
			case <-begun: // this call runs the work
				result = <-landed
			default: // another call runs work; or this call runs it, and the run sees the ended context first
				var none T
				return none, ctx.Err()
			}
		}
		l := result.Val.(outcome[T]) //nolint:errcheck // the function above returns nothing else
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

// run calls work and stores its result. l.exited stays true if work does not return.
func run[T any](ctx context.Context, work func() (T, error), l *outcome[T]) {
	defer func() {
		if p := recover(); p != nil {
			*l = outcome[T]{panicked: &panicked{p, debug.Stack()}}
		}
	}()
	if err := ctx.Err(); err != nil {
		*l = outcome[T]{err: err, abandoned: true}
		return
	}
	v, err := work()
	*l = outcome[T]{value: v, err: err, abandoned: err != nil && ctx.Err() != nil}
}

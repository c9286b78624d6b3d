// Package await waits for what nothing can take back: a read of a terminal, the opening of
// a pipe that nobody writes to, a disk of the network that is gone.
package await

import "context"

// Answer is what work answers, or why ctx ended before. Work is left to itself then, and
// ends with the process at the latest.
func Answer[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		value, err := work()
		answered <- answer{value, err}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

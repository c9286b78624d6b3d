// Package await waits for operations that cannot be cancelled, for example a read from a terminal, the opening of a
// pipe without a writer, or an access to an unreachable network disk.
package await

import "context"

// Result returns the result of work. If ctx ends first, it returns the cause of ctx, and work continues in its
// goroutine until work or the process ends.
func Result[T any](ctx context.Context, work func() (T, error)) (T, error) {
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

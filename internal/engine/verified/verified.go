package verified

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// verifiedWrite is the one shape of a mutating operation (contract 1.6 to 1.8): read,
// refuse or write, re-read, verdict. S is the state that is read before and after, and R
// is the result.
type verifiedWrite[S, R any] struct {
	read func(ctx context.Context) (S, error)
	// refuse returns an error if nothing must be sent, by the state before. A nil refuse
	// never rejects.
	refuse func(before S) error
	write  func(ctx context.Context, before S) error
	// reread, if set, replaces the second read. It is for a write after which the caller
	// may be permitted to read less than before.
	reread func(ctx context.Context) (S, error)
	// verdict describes the re-read state, never the data that was sent. A negative
	// verdict is the filled result together with a fault.
	verdict func(before, after S) (R, error)
	// unread, if set, is the code for a failed re-read: the write was sent, so its effect
	// is unknown. If it is not set, the fault of the read itself is returned.
	unread fault.Code
}

func (w verifiedWrite[S, R]) do(ctx context.Context) (R, error) {
	var none R
	before, err := w.read(ctx)
	if err != nil {
		return none, err
	}
	if w.refuse != nil {
		if err := w.refuse(before); err != nil {
			return none, err
		}
	}
	if err := w.write(ctx, before); err != nil {
		return none, err
	}
	after, err := w.readAgain(ctx)
	if err != nil {
		return none, w.readbackFault(err)
	}
	return w.verdict(before, after)
}

func (w verifiedWrite[S, R]) readAgain(ctx context.Context) (S, error) {
	if w.reread != nil {
		return w.reread(ctx)
	}
	return w.read(ctx)
}

func (w verifiedWrite[S, R]) readbackFault(err error) error {
	if w.unread == "" || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(w.unread, "the write was sent, but the read after it failed; read the object before you try again").Because(err)
}

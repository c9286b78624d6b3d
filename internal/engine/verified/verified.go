package verified

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// verifiedWrite does the steps of every write (contract 1.6 to 1.8): read, refuse or write, read again, and compare. S
// is the state that is read before and after the write. R is the result.
type verifiedWrite[S, R any] struct {
	read func(ctx context.Context) (S, error)
	// refuse returns an error if the write must not be sent, judged by the state before it. nil refuses nothing.
	refuse func(before S) error
	write  func(ctx context.Context, before S) error
	// reread, if set, is used instead of read after the write. It is for a write after which the caller may have less
	// rights to read.
	reread func(ctx context.Context) (S, error)
	// verdict returns the result, from the state after the write and never from the data that was sent. If the state is
	// not as requested, it returns the result and a fault.
	verdict func(before, after S) (R, error)
	// unread, if set, is the code of the fault if reread or the second read fails: the effect of the write is unknown
	// then. If it is not set, verifiedWrite returns the fault of the read.
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

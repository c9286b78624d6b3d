package verified

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// verifiedWrite is the one shape of a mutating operation (contract 1.6 to
// 1.8): read, refuse or write, re-read, verdict. S is the state that
// is read before and after, R the result that is answered.
type verifiedWrite[S, R any] struct {
	read func(ctx context.Context) (S, error)
	// refuse decides on the state before whether to send anything. Nil never refuses.
	refuse func(before S) error
	write  func(ctx context.Context, before S) error
	// reread, when set, takes the place of the second read, for a write after which
	// the caller may no longer read all that it could before.
	reread func(ctx context.Context) (S, error)
	// verdict describes the re-read state, never what was sent. A verdict that
	// is bad comes as the filled result together with a fault.
	verdict func(before, after S) (R, error)
	// unread, when set, names the code for a re-read that fails: the write was
	// sent, so its effect is unknown. Without it the read's own fault is answered.
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
	return fault.New(w.unread, "the write was sent, but reading it back failed; read the object before trying again").Because(err)
}

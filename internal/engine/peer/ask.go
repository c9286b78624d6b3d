package peer

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of retries.
const (
	maxAttempts = 3
	firstPause  = 50 * time.Millisecond
)

// effect is the effect that a call may have had on the peer if no response came.
type effect int

const (
	reads   effect = iota // none
	uses                  // counts a use: too many uses may be counted, never too few (ADR 0004)
	changes               // changes an ACL
)

// callUnary makes a unary call. If the connection breaks, callUnary retries with the same call key, so that the peer
// executes the call only once. It does not retry after a timeout.
func callUnary[In, Out any](ctx context.Context, r remote, kind effect, in *In, call method[In, Out]) (*Out, error) {
	p, err := r.client.enter(ctx, r.peer)
	if err != nil {
		return nil, r.unreached(err)
	}
	return attempt(ctx, r, p, kind, in, call)
}

// attempt makes a call that has a place in the pool p, and releases the place at the end.
func attempt[In, Out any](ctx context.Context, r remote, p *pool, kind effect, in *In, call method[In, Out], options ...grpc.CallOption) (*Out, error) {
	within, cancel := context.WithTimeout(ctx, r.client.Timeout)
	defer cancel()
	unanswered := false // a connection existed, but no response came
	for n := 1; ; n++ {
		var at peer.Peer
		out, err := call(p.stub(), within, in, append(options, grpc.Peer(&at))...)
		if status.Code(err) == codes.Unavailable && n < maxAttempts && pause(within, n) {
			unanswered = unanswered || at.Addr != nil
			continue
		}
		p.leave(r.client.Clock(), judge(ctx, err))
		switch {
		case err == nil:
			return out, nil
		case kind == changes && (unanswered || at.Addr != nil && mayHaveChanged(err)):
			return nil, r.noAnswer(err)
		default:
			return nil, r.explain(ctx, err)
		}
	}
}

// mayHaveChanged reports whether an ACL may have changed, although its only attempt failed with err. The ACL may have
// changed if no response came, or if the response reports a temporary failure, for example of the database. A peer that
// is overloaded, or does not know whether it is current, has not begun the change.
func mayHaveChanged(err error) bool {
	r := refusalIn(err)
	if r == nil {
		return true
	}
	code := fault.Code(r.GetCode())
	return r.GetRetryable() && code != fault.Overloaded && code != fault.NotCurrent
}

// unreached returns the error for a call that was never sent.
func (r remote) unreached(err error) error {
	if fault.As(err) != nil { // the cause is this key server, for example its database
		return err
	}
	return unavailable(r.peer.System, 0, "cannot be reached from this key server").Because(err)
}

// pause waits before the next attempt. It reports false if ctx ends first.
func pause(ctx context.Context, attempt int) bool {
	wait := firstPause << (attempt - 1)
	wait += rand.N(wait) //nolint:gosec // spreads the retries of many callers
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// judge returns the outcome of a call for the breaker. The outcome is unknown if the caller disconnected or its time
// limit ended.
func judge(ctx context.Context, err error) outcome {
	switch {
	case err == nil, refusalIn(err) != nil:
		return answered
	case ctx.Err() != nil:
		return unknown
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return failed
	case codes.Canceled: // this key server closed the connection
		return unknown
	default: // the peer sent the status, so it responds
		return answered
	}
}

// explain converts the error of a call into a fault.
func (r remote) explain(ctx context.Context, err error) error {
	if fault.As(err) != nil { // the call was never sent
		return err
	}
	if refusal := refusalIn(err); refusal != nil {
		return faultOf(refusal, r.peer.System)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch status.Code(err) {
	case codes.Unavailable:
		return unavailable(r.peer.System, 0, "cannot be reached, or refuses the connection").Because(err)
	case codes.DeadlineExceeded:
		return unavailable(r.peer.System, 0, "did not respond in time").Because(err)
	case codes.Canceled:
		return unavailable(r.peer.System, 0, "lost its connection, which this key server closed").Because(err)
	default:
		return fault.New(fault.OpFailed, "the peer %d returned a response that this key server does not understand", r.peer.System).
			Because(err).Audited(fault.ReasonFailed)
	}
}

// noAnswer returns the error for a change that was sent to the peer and may have taken effect.
func (r remote) noAnswer(cause error) error {
	return fault.New(fault.PeerNoAnswer, "the peer %d did not respond to the change, which may have taken effect; read the ACL before you try again", r.peer.System).
		Because(cause).Audited(fault.ReasonPeerUnavailable)
}

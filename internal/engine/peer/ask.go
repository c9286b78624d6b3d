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

// Bounds of retries.
const (
	maxAttempts = 3
	firstPause  = 50 * time.Millisecond
)

// effect is the effect that a call may have had on the peer if no response came.
type effect int

const (
	reads   effect = iota // nothing
	uses                  // counted a use: too many uses may be counted, never too few (ADR 0004)
	changes               // changed an ACL
)

// callUnary makes a unary call. If the connection breaks, callUnary retries with the same call key,
// so that the peer executes the call once. It does not retry if the peer is slow.
func callUnary[In, Out any](ctx context.Context, r remote, kind effect, in *In, call method[In, Out]) (*Out, error) {
	p, err := r.client.enter(ctx, r.peer)
	if err != nil {
		return nil, r.unreached(err)
	}
	return attempt(ctx, r, p, kind, in, call)
}

// attempt makes a call that has a place in the pool p, and then releases the place.
func attempt[In, Out any](ctx context.Context, r remote, p *pool, kind effect, in *In, call method[In, Out], options ...grpc.CallOption) (*Out, error) {
	within, cancel := context.WithTimeout(ctx, r.client.Timeout)
	defer cancel()
	unanswered := false // an attempt got a connection, but no response
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

// mayHaveChanged reports whether an ACL may have changed although the only attempt failed. The ACL may have changed if
// no response came, or if the database of the peer failed, so that the peer may not know. A peer does not begin a
// change if it is overloaded, or does not know whether it is current.
func mayHaveChanged(err error) bool {
	r := refusalIn(err)
	if r == nil {
		return true
	}
	code := fault.Code(r.GetCode())
	return r.GetRetryable() && code != fault.Overloaded && code != fault.NotCurrent
}

// unreached returns the error for a call that was not tried.
func (r remote) unreached(err error) error {
	if fault.As(err) != nil { // about the state of this key server, for example its database
		return err
	}
	return unavailable(r.peer.System, 0, "cannot be reached from this key server").Because(err)
}

// pause waits before the retry after the given attempt. It reports false if ctx ends
// first.
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

// judge returns the outcome of a call for the breaker. If the caller disconnected, or if the time limit of the caller
// ended, the outcome is unknown.
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
	case codes.Canceled: // the connection was closed here
		return unknown
	default: // a live process sent it
		return answered
	}
}

// explain turns the failure of a call into a fault.
func (r remote) explain(ctx context.Context, err error) error {
	if fault.As(err) != nil { // the call was never made
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

// noAnswer returns the fault for a change that was sent to the peer and may have taken
// effect.
func (r remote) noAnswer(cause error) error {
	return fault.New(fault.PeerNoAnswer, "the peer %d did not respond to the change, which may have taken effect; read the ACL before you try again", r.peer.System).
		Because(cause).Audited(fault.ReasonPeerUnavailable)
}

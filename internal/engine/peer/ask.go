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

// Bounds of repetitions.
const (
	maxAttempts = 3
	firstPause  = 50 * time.Millisecond
)

// effect is what a call may have done where no answer came.
type effect int

const (
	reads   effect = iota // nothing
	uses                  // counted a use, which errs on the strict side (ADR 0004)
	changes               // changed a list
)

// ask makes a unary call. Where the connection breaks, the call is repeated
// with the same key, so that the peer does it once; a peer that is slow is not
// asked again.
func ask[In, Out any](ctx context.Context, r remote, kind effect, in *In, call method[In, Out]) (*Out, error) {
	p, err := r.client.enter(ctx, r.peer)
	if err != nil {
		return nil, r.unreached(err)
	}
	return attempt(ctx, r, p, kind, in, call)
}

// attempt makes the call of a place in the pool, and leaves the pool.
func attempt[In, Out any](ctx context.Context, r remote, p *pool, kind effect, in *In, call method[In, Out], options ...grpc.CallOption) (*Out, error) {
	within, cancel := context.WithTimeout(ctx, r.client.Timeout)
	defer cancel()
	unanswered := false // an attempt got as far as a connection, and no further
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

// mayHaveChanged reports whether a list may have changed although the only
// attempt failed: where there is no answer, and where the peer itself may not
// know, because its database failed it. A peer that has no place for a call, or
// does not know whether it is up to date, does not begin with it.
func mayHaveChanged(err error) bool {
	r := refusalIn(err)
	if r == nil {
		return true
	}
	code := fault.Code(r.GetCode())
	return r.GetRetryable() && code != fault.Overloaded && code != fault.NotCurrent
}

// unreached is for a call that was not even tried.
func (r remote) unreached(err error) error {
	if fault.As(err) != nil { // this key server's own state, the database for one
		return err
	}
	return unavailable(r.peer.System, 0, "cannot be reached from this key server").Because(err)
}

// pause waits before a repetition, and reports whether there is time for it.
func pause(ctx context.Context, attempt int) bool {
	wait := firstPause << (attempt - 1)
	wait += rand.N(wait) //nolint:gosec // so that many callers do not come back together
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// judge says what the end of a call says about the peer. A caller that went
// away, or ran out of its own time, says nothing.
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
	default: // somebody who lives sent it
		return answered
	}
}

// explain turns the failure of a call into a fault.
func (r remote) explain(ctx context.Context, err error) error {
	if fault.As(err) != nil { // it was not made at all
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
		return unavailable(r.peer.System, 0, "cannot be reached, or does not let this key server in").Because(err)
	case codes.DeadlineExceeded:
		return unavailable(r.peer.System, 0, "did not answer in time").Because(err)
	case codes.Canceled:
		return unavailable(r.peer.System, 0, "was cut off from this key server, which closed the connection").Because(err)
	default:
		return fault.New(fault.OpFailed, "the peer %d gave no answer that this key server understands", r.peer.System).
			Because(err).Audited(fault.ReasonFailed)
	}
}

// noAnswer is for a change that the peer was sent and may have made.
func (r remote) noAnswer(cause error) error {
	return fault.New(fault.PeerNoAnswer, "the peer %d was sent the change and did not answer; read the list before trying again", r.peer.System).
		Because(cause).Audited(fault.ReasonPeerUnavailable)
}

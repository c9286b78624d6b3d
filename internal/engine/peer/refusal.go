package peer

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Bounds of what a peer says about a refusal.
const (
	maxDetail     = 512
	maxReason     = 64
	maxRetryAfter = time.Minute
)

// statusOf is a failure as a peer is told of it. A fault keeps its code, its
// sentence and its audit reason, never its cause; anything else is a failure
// without words.
func statusOf(err error) error {
	f := fault.As(err)
	if f == nil {
		f = fault.New(fault.OpFailed, "the operation failed; the log of that key server tells why")
	}
	s, failed := status.New(codes.FailedPrecondition, string(f.Code)).WithDetails(&peerpb.Refusal{
		Code: string(f.Code), Detail: f.Detail, Reason: string(f.Reason), Retryable: f.Retryable, RetryAfterMs: f.RetryAfter.Milliseconds(),
	})
	if failed != nil { // only text that is not UTF-8 gets here
		return status.Error(codes.Internal, string(fault.OpFailed))
	}
	return s.Err()
}

// refusalIn returns what a peer said about a refusal, nil where the call did
// not get as far as an answer.
func refusalIn(err error) *peerpb.Refusal {
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*peerpb.Refusal); ok {
			return r
		}
	}
	return nil
}

// passedOn are the codes of a peer that mean the same to a caller here. Others
// are about the peer's own callers, like those of sessions.
var passedOn = map[fault.Code]bool{
	fault.InvalidArgument: true, fault.AccessDenied: true, fault.ACLDenied: true, fault.PrincipalOff: true,
	fault.KeyDisabled: true, fault.KeyExhausted: true,
	fault.KeyNotFound: true, fault.ACLNotFound: true, fault.NotFound: true,
	fault.CheckpointUnsigned: true, fault.CheckpointInconsistent: true,
}

// faultOf is a refusal of a peer as a fault here.
func faultOf(r *peerpb.Refusal, peer keyserver.SystemID) *fault.Error {
	reason := fault.Reason(r.GetReason())
	if !plainReason(r.GetReason()) {
		reason = fault.ReasonFailed
	}
	detail := plainDetail(r.GetDetail())
	switch code := fault.Code(r.GetCode()); {
	case passedOn[code]:
		return fault.New(code, "the peer %d says: %s", peer, detail).Audited(reason)
	case r.GetRetryable():
		after := time.Duration(min(max(r.GetRetryAfterMs(), 0), maxRetryAfter.Milliseconds())) * time.Millisecond
		return fault.Temporary(fault.PeerUnavailable, fault.ScopeProcess, after, "the peer %d cannot do it now, and says: %s", peer, detail).
			Audited(fault.ReasonPeerUnavailable)
	default:
		return fault.New(fault.OpFailed, "the peer %d failed, and says: %s", peer, detail).Audited(reason)
	}
}

// plainDetail cuts a sentence of a peer to what can be shown anywhere.
func plainDetail(s string) string {
	s = strings.Map(func(r rune) rune {
		if keyserver.Unprintable(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "")
	}
	return s
}

// plainReason reports whether a peer's audit reason looks like one.
func plainReason(s string) bool {
	return s != "" && len(s) <= maxReason && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0
}

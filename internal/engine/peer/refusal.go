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

// Limits of the fields in a peer's refusal.
const (
	maxDetail     = 512
	maxReason     = 64
	maxRetryAfter = time.Minute
)

// statusOf converts an error into a status for a peer. The status has the code, the text and the audit reason of a
// fault, but never its cause. Any other error becomes a status without details.
func statusOf(err error) error {
	f := fault.As(err)
	if f == nil {
		f = fault.New(fault.OpFailed, "the operation failed; the log of that key server has the cause")
	}
	s, failed := status.New(codes.FailedPrecondition, string(f.Code)).WithDetails(&peerpb.Refusal{
		Code: string(f.Code), Detail: f.Detail, Reason: string(f.Reason), Retryable: f.Retryable, RetryAfterMs: f.RetryAfter.Milliseconds(),
	})
	if failed != nil { // fails only if a text is not UTF-8
		return status.Error(codes.Internal, string(fault.OpFailed))
	}
	return s.Err()
}

// refusalIn returns the refusal that a peer sent, or nil if the error is not a refusal.
func refusalIn(err error) *peerpb.Refusal {
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*peerpb.Refusal); ok {
			return r
		}
	}
	return nil
}

// passedOn are the codes of a peer that have the same meaning for a caller here. Other codes concern only the peer's
// own callers, for example codes about sessions.
var passedOn = map[fault.Code]bool{
	fault.InvalidArgument: true, fault.AccessDenied: true, fault.ACLDenied: true, fault.PrincipalOff: true,
	fault.KeyDisabled: true, fault.KeyExhausted: true,
	fault.KeyNotFound: true, fault.ACLNotFound: true, fault.NotFound: true,
	fault.CheckpointUnsigned: true, fault.CheckpointInconsistent: true,
}

// faultOf converts a peer's refusal into a fault.
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
		return fault.Temporary(fault.PeerUnavailable, fault.ScopeProcess, after, "the peer %d cannot perform the operation now: %s", peer, detail).
			Audited(fault.ReasonPeerUnavailable)
	default:
		return fault.New(fault.OpFailed, "the peer %d failed: %s", peer, detail).Audited(reason)
	}
}

// plainDetail removes unprintable characters from a peer's text and limits its length to maxDetail bytes.
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

// plainReason reports whether text from a peer has the form of an audit reason.
func plainReason(s string) bool {
	return s != "" && len(s) <= maxReason && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0
}

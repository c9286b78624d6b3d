package peer

import (
	"context"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// TestChangesThatMayHaveBeenMade checks that an error says that a change may have taken effect, unless the opposite is
// known.
func TestChangesThatMayHaveBeenMade(t *testing.T) {
	later := func(code fault.Code) error { return fault.Temporary(code, fault.ScopeProcess, time.Second, "later") }
	refused := func(code fault.Code) error { return fault.New(code, "no").Audited(fault.ReasonFailed) }
	cases := map[string]struct {
		reason string
		broken bool // the first attempt breaks after the peer has executed it
		answer error
		change fault.Code // expected result of a change
		use    fault.Code // expected result of a use
	}{
		"Done":           {"the repetition is known", true, nil, "", ""},
		"Refused":        {"the peer says no", false, refused(fault.ACLDenied), fault.ACLDenied, fault.ACLDenied},
		"Database":       {"the database may have failed at the commit", false, later(fault.StoreUnavailable), fault.PeerNoAnswer, fault.PeerUnavailable},
		"Audit":          {"the peer says that it may be tried again, not that nothing was done", false, later(fault.AuditUnavailable), fault.PeerNoAnswer, fault.PeerUnavailable},
		"Overloaded":     {"there was no place for the call", false, later(fault.Overloaded), fault.PeerUnavailable, fault.PeerUnavailable},
		"NotCurrent":     {"the gate asks that first", false, later(fault.NotCurrent), fault.PeerUnavailable, fault.PeerUnavailable},
		"ThenDatabase":   {"the first attempt may have worked", true, later(fault.StoreUnavailable), fault.PeerNoAnswer, fault.PeerUnavailable},
		"ThenOverloaded": {"the first attempt may have worked", true, later(fault.Overloaded), fault.PeerNoAnswer, fault.PeerUnavailable},
		"ThenRefused":    {"the first attempt may have taken the caller's own entry away", true, refused(fault.ACLDenied), fault.PeerNoAnswer, fault.ACLDenied},
		"ThenGone":       {"the first attempt may have removed the entry", true, refused(fault.ACLNotFound), fault.PeerNoAnswer, fault.ACLNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, patience)
			set := func() {
				first := tc.broken
				w.keys.answer = func(context.Context, keyserver.Caller) error {
					if first {
						first = false
						w.at.cut()
						return nil
					}
					return tc.answer
				}
			}
			set()
			err := w.ask().RevokeACL(t.Context(), caller(t), keyserver.ACLRevocation{Link: link, Principal: keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(7)}})
			if fault.CodeOf(err) != tc.change {
				t.Errorf("%s: a change is answered %v, want %q", tc.reason, err, tc.change)
			}
			if f := fault.As(err); f != nil && f.Code == fault.PeerNoAnswer && f.Retryable {
				t.Errorf("%s: a caller is told to repeat it", tc.reason)
			}
			set()
			if _, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link}); fault.CodeOf(err) != tc.use {
				t.Errorf("%s: a use is answered %v, want %q", tc.reason, err, tc.use)
			}
		})
	}
}

// TestACallFailsOnce checks that a call with several attempts counts as one failure. The breaker opens after five
// consecutive failed calls.
func TestACallFailsOnce(t *testing.T) {
	w := newWorld(t, patience)
	_ = w.at.Close()
	for i := range breakAfter {
		_, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link})
		code(t, err, fault.PeerUnavailable)
		p := w.client.pools[2]
		if p.breaker.fails != i+1 {
			t.Errorf("%d calls count as %d", i+1, p.breaker.fails)
		}
		if n := len(p.places); n > 0 {
			t.Errorf("%d places are taken", n)
		}
	}
}

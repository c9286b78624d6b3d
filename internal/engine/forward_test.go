package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// recorder records the order in which audit rows are written and a peer is called. It can fail to write rows, and
// cancel the caller.
type recorder struct {
	keyserver.Federated // nil: only the methods below may be called
	gate.Auditor        // writes the rows
	events              []string
	begin, durable      error
	leave               context.CancelFunc // cancels the caller during the call of the peer
}

func (r *recorder) At(keyserver.TrustedServer) keyserver.Federated { return r }

func (r *recorder) Write(ctx context.Context, entry keyserver.AuditEntry) error {
	r.events = append(r.events, string(entry.Outcome)+" written")
	return r.Auditor.Write(ctx, entry)
}

func (r *recorder) Begin(ctx context.Context, entry keyserver.AuditEntry) (func() error, error) {
	r.events = append(r.events, string(entry.Outcome)+" begun")
	if r.begin != nil {
		return nil, r.begin
	}
	durable, err := r.Auditor.Begin(ctx, entry)
	return func() error {
		r.events = append(r.events, "durable")
		return errors.Join(durable(), ctx.Err(), r.durable)
	}, err
}

func (r *recorder) asked(ctx context.Context) error {
	r.events = append(r.events, "asked")
	if r.leave != nil {
		r.leave()
	}
	return ctx.Err()
}

func (r *recorder) HMAC(ctx context.Context, _ keyserver.Caller, _ keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	mac[0] = 1
	return mac, r.asked(ctx)
}

func (r *recorder) GrantACL(ctx context.Context, _ keyserver.Caller, _ keyserver.ACLChange) error {
	return r.asked(ctx)
}

// oddHome is a peer with one valid principal and one that cannot be shown.
type oddHome struct {
	keyserver.Federated
	has, odd keyserver.PrincipalRef
}

func (h oddHome) At(keyserver.TrustedServer) keyserver.Federated { return h }

func (h oddHome) LookupPrincipals(context.Context, keyserver.Caller, []keyserver.PrincipalRef) ([]keyserver.Principal, error) {
	found := []keyserver.Principal{{ID: h.has.ID, System: h.has.System, Type: keyserver.PasswordPrincipal, Name: "off"}}
	return found, fault.New(fault.OpFailed, "one cannot be shown").Because(&keyserver.UnreadableError{Principals: []keyserver.PrincipalRef{h.odd}})
}

// TestPrincipalsThatCannotBeShown checks that a lookup omits a principal that its key server cannot show, and keeps the
// principal's ACL entries. Other principals are returned.
func TestPrincipalsThatCannotBeShown(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		enginetest.Must(f.CreatePrincipalTrust(ctx, f.Admin, keyserver.PrincipalTrust{Principal: f.Admin.Principal.ID, Server: enginetest.PeerSystem, Flag: keyserver.Expose}))(t)
		ref := func(n uint64) keyserver.PrincipalRef {
			return keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(n)}
		}
		off, odd, gone := ref(70), ref(71), ref(72)
		link := f.Mint(t, f.Admin, nil)
		for _, p := range []keyserver.PrincipalRef{off, odd, gone} {
			f.Grant(t, link, p, keyserver.Read, keyserver.NoUsageLimit)
		}
		cfg := f.Config
		cfg.Peers = oddHome{has: off, odd: odd}
		found := enginetest.Must(engine.New(cfg).LookupPrincipals(ctx, f.Admin, []keyserver.PrincipalRef{off, odd, gone}))(t)
		if len(found) != 1 || found[0].Ref() != off {
			t.Errorf("found %+v", found)
		}
		acl := enginetest.Must(f.ACL(ctx, f.Admin, link))(t)
		for p, open := range map[keyserver.PrincipalRef]bool{off: false, odd: true, gone: false} {
			if e, _ := acl.Entry(p); e.End.IsUnset() != open {
				t.Errorf("the entry of %v is open: %v, want %v", p, e.End.IsUnset(), open)
			}
		}
	})
}

// TestRowsOfForwardedCalls checks the order of audit rows and calls of peers: the result of a use is returned only when
// its row is durable. A change is sent only after its row is durable (ADR 20).
func TestRowsOfForwardedCalls(t *testing.T) {
	unwritable := fault.Temporary(fault.AuditUnavailable, fault.ScopeProcess, time.Second, "no row could be written")
	hmac := func(ctx context.Context, e *engine.Engine, by keyserver.Caller, link keyserver.HiddenLink) error {
		mac, err := e.HMAC(ctx, by, keyserver.HMACRequest{Link: link, Message: text("m")})
		if (err == nil) != (mac[0] == 1) {
			return errors.New("an answer beside a refusal")
		}
		return err
	}
	grant := func(ctx context.Context, e *engine.Engine, by keyserver.Caller, link keyserver.HiddenLink) error {
		return e.GrantACL(ctx, by, keyserver.ACLChange{Link: link, Principal: by.Principal, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit})
	}
	cases := map[string]struct {
		reason string
		given  recorder
		leaves bool
		call   func(context.Context, *engine.Engine, keyserver.Caller, keyserver.HiddenLink) error
		code   fault.Code // empty: allowed
		want   []string
	}{
		"NoRow":   {"without a row nothing is sent", recorder{begin: unwritable}, false, hmac, fault.AuditUnavailable, []string{"allowed begun"}},
		"RowLost": {"the answer is withheld", recorder{durable: unwritable}, false, hmac, fault.AuditUnavailable, []string{"allowed begun", "asked", "durable"}},
		"CallerLeaves": {
			"the row of what was sent stays", recorder{}, true, hmac, fault.CodeOf(context.Canceled),
			[]string{"allowed begun", "asked", "durable", "failed written"},
		},
		"Use":    {"the peer works while the row is written", recorder{}, false, hmac, "", []string{"allowed begun", "asked", "durable"}},
		"Change": {"a change waits for its row", recorder{}, false, grant, "", []string{"allowed written", "asked"}},
	}
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		enginetest.Must(f.CreatePrincipalTrust(ctx, f.Admin, keyserver.PrincipalTrust{Principal: f.Admin.Principal.ID, Server: enginetest.PeerSystem, Flag: keyserver.Expose}))(t)
		link := values.NewHiddenLink(enginetest.PeerSystem, values.IDFromUint64(1))
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				at := tc.given
				at.Auditor = f.Rows
				cfg := f.Config
				cfg.Peers, cfg.Auditor = &at, &at
				e := engine.New(cfg)
				calling, leave := context.WithCancel(ctx)
				defer leave()
				if tc.leaves {
					at.leave = leave
				}
				before := len(f.AllRows(t))
				err := tc.call(calling, e, f.Admin, link)
				if got := fault.CodeOf(err); got != tc.code || tc.leaves != errors.Is(err, context.Canceled) {
					t.Errorf("%s: got %v", tc.reason, err)
				}
				if diff := cmp.Diff(tc.want, at.events); diff != "" {
					t.Errorf("%s: %s", tc.reason, diff)
				}
				if name == "RowLost" && !strings.Contains(err.Error(), "withheld") {
					t.Errorf("the refusal does not say that the peer was asked: %v", err)
				}
				if written := len(f.AllRows(t)) - before; tc.leaves && written != 2 {
					t.Errorf("%d rows of a call that the peer was sent", written)
				}
			})
		}
	})
}

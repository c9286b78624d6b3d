package peer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func code(t testing.TB, err error, want fault.Code) fault.Error {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Code != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	return *f
}

// TestIdentity checks that a process with a certificate of a trusted CA, but without the key of a registered peer, can
// make no call and receives none.
func TestIdentity(t *testing.T) {
	under := func(t *testing.T, i identity) identity { // another key under the same CA
		t.Helper()
		own, err := i.ca.IssueServer("key server", nil, nil, time.Now(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return identity{i.ca, own}
	}
	cases := map[string]struct {
		reason string
		spoil  func(t *testing.T, w *world)
		want   fault.Code
	}{
		"Known":      {"both know each other", func(*testing.T, *world) {}, ""},
		"Renewed":    {"a certificate issued anew under the same key is the peer's", func(t *testing.T, w *world) { w.show(t, renewed(t, w.serverID)) }, ""},
		"OtherKey":   {"a certificate of the same CA is not the peer's", func(t *testing.T, w *world) { w.show(t, under(t, w.serverID)) }, fault.PeerUnavailable},
		"OtherCA":    {"the peer's key under an unknown CA is not trusted", func(t *testing.T, w *world) { w.show(t, underOtherCA(t, w.serverID)) }, fault.PeerUnavailable},
		"OtherPeer":  {"a registered peer is not the one that was asked for", func(t *testing.T, w *world) { i := newIdentity(t); w.known.trust(i, 3, netip.AddrPort{}); w.show(t, i) }, fault.PeerUnavailable},
		"CARemoved":  {"the CA is trusted no more", func(_ *testing.T, w *world) { w.known.cas = nil }, fault.PeerUnavailable},
		"NotLetIn":   {"the peer has no record of this key server", func(_ *testing.T, w *world) { w.knows.servers = nil }, fault.PeerUnavailable},
		"Ambiguous":  {"two records with one key are nobody's", func(_ *testing.T, w *world) { w.knows.trust(w.clientID, 4, netip.AddrPort{}) }, fault.PeerUnavailable},
		"NobodyHome": {"nobody listens", func(_ *testing.T, w *world) { w.at.Close() }, fault.PeerUnavailable},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, patience)
			tc.spoil(t, w)
			_, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link})
			if fault.CodeOf(err) != tc.want {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
			if tc.want != "" && len(w.keys.seen()) > 0 {
				t.Errorf("%s: the call arrived", tc.reason)
			}
			if f := fault.As(err); f != nil && (!f.Retryable || f.Scope != fault.ScopeProcess || f.RetryAfter <= 0 || f.Reason != fault.ReasonPeerUnavailable) {
				t.Errorf("%s: %+v does not say when to come back", tc.reason, f)
			}
		})
	}
}

// TestConnectionsAreShutOut checks that the first call after a change does not use an open connection that the change
// excludes, on both sides.
func TestConnectionsAreShutOut(t *testing.T) {
	for name, shut := range map[string]func(w *world){
		"PeerGone":   func(w *world) { w.knows.forget(func(r *registry) { r.servers = nil }); w.gate.Changed(nil) },
		"CAGone":     func(w *world) { w.knows.forget(func(r *registry) { r.cas = nil }); w.gate.Changed(nil) },
		"OwnCAGone":  func(w *world) { w.known.forget(func(r *registry) { r.cas = nil }); w.client.Changed(nil) },
		"OwnPeerOut": func(w *world) { w.known.forget(func(r *registry) { r.servers = nil }); w.client.Changed(nil) },
		"Revoked": func(w *world) {
			w.knows.revoke(w.clientID)
			w.gate.Changed([]keyserver.Change{{Kind: keyserver.ChangeRevocation, Action: keyserver.Updated}})
		},
		"OwnRevoked": func(w *world) {
			w.known.revoke(w.serverID)
			w.client.Changed([]keyserver.Change{{Kind: keyserver.ChangeRevocation, Action: keyserver.Updated}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, patience)
			for range 4 { // one call on each connection of the pool
				if _, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link}); err != nil {
					t.Fatal(err)
				}
			}
			before := len(w.keys.seen())
			shut(w)
			for _, length := range []int{1, 3 * pieceLen} {
				_, err := w.ask().HMAC(t.Context(), caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, length)}})
				code(t, err, fault.PeerUnavailable)
			}
			if n := len(w.keys.seen()) - before; n > 0 {
				t.Errorf("%d calls arrived", n)
			}
		})
	}
}

// show makes the server use an identity at a new address. It updates the record.
func (w *world) show(t testing.TB, i identity) {
	t.Helper()
	w.listen(t, i)
	at := netip.MustParseAddrPort(w.at.Addr().String())
	w.asked.Port = at.Port()
	w.known.forget(func(r *registry) { r.servers[0].Port = at.Port() })
}

func renewed(t testing.TB, i identity) identity {
	t.Helper()
	own, err := i.ca.IssueServer("renewed", nil, i.own.Key, time.Now(), rand.Reader)
	if err != nil || own.Certificate.SerialNumber.Cmp(big.NewInt(0)) == 0 {
		t.Fatal(err)
	}
	return identity{i.ca, own}
}

func underOtherCA(t testing.TB, i identity) identity {
	t.Helper()
	ca, err := pki.NewCA("another CA", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.IssueServer("key server", nil, i.own.Key, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return identity{ca, own}
}

// TestCaller checks that the server receives the description of the caller. The system id comes from the connection,
// not from the message.
func TestCaller(t *testing.T) {
	w := newWorld(t, patience)
	by := caller(t)
	if _, err := w.ask().AuthorizeKey(t.Context(), by, keyserver.Use{Link: link, Filename: "file"}); err != nil {
		t.Fatal(err)
	}
	got := w.keys.seen()[0]
	if got.Peer.Key == (keyserver.CallKey{}) {
		t.Error("the call has no key")
	}
	want := by
	want.Address = "127.0.0.1" // address of the peer
	want.Peer = &keyserver.PeerCall{System: 1, Groups: by.Peer.Groups, Key: got.Peer.Key}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v %+v, want %+v %+v", got, got.Peer, want, want.Peer)
	}

	self := keyserver.Caller{Kind: keyserver.InternalSession, RequestID: "request-2", Peer: &keyserver.PeerCall{System: 1}}
	if _, err := w.ask().LookupPrincipals(t.Context(), self, []keyserver.PrincipalRef{{System: 2, ID: values.IDFromUint64(5)}}); err != nil {
		t.Fatal(err)
	}
	got = w.keys.seen()[1]
	if transport := (keyserver.PrincipalRef{System: 2, ID: values.IDFromUint64(1001)}); got.Principal != transport || got.Kind != keyserver.PeerSession || got.Peer.System != 1 {
		t.Errorf("the key server itself calls as %+v", got)
	}
}

// TestMalformedCalls checks that malformed calls are refused before the key server is called.
func TestMalformedCalls(t *testing.T) {
	good := func() *peerpb.Call {
		return &peerpb.Call{Principal: &peerpb.Principal{Ref: &peerpb.Ref{System: 1, Id: 7}, Type: "password", Name: "x"}, RequestId: "r", Nonce: make([]byte, 16)}
	}
	spoil := func(change func(*peerpb.Call)) *peerpb.Call { c := good(); change(c); return c }
	long := strings.Repeat("x", 2000)
	w := newWorld(t, patience)
	c := peerpb.NewKeyServerClient(w.raw(t, w.clientID))
	bad := map[string]*peerpb.Call{
		"None": nil, "NoRequestID": spoil(func(c *peerpb.Call) { c.RequestId = "" }),
		"RequestID": spoil(func(c *peerpb.Call) { c.RequestId = "a\nb" }), "LongRequestID": spoil(func(c *peerpb.Call) { c.RequestId = long }),
		"NoNonce": spoil(func(c *peerpb.Call) { c.Nonce = nil }), "LongName": spoil(func(c *peerpb.Call) { c.Principal.Name = long }),
		"Groups": spoil(func(c *peerpb.Call) { c.Groups = make([]uint64, keyserver.MaxGroups+1) }),
	}
	refused := func(t *testing.T, err error) {
		t.Helper()
		if r := refusalIn(err); r == nil || r.GetCode() != string(fault.InvalidArgument) {
			t.Errorf("got %v", err)
		}
	}
	for name, call := range bad {
		t.Run(name, func(t *testing.T) {
			_, err := c.Authorize(t.Context(), &peerpb.AuthorizeRequest{Call: call, Link: []byte(link)})
			refused(t, err)
		})
	}
	change := func(change func(*peerpb.ChangeACLRequest)) *peerpb.ChangeACLRequest {
		in := &peerpb.ChangeACLRequest{Call: good(), Link: []byte(link), Kind: peerpb.ChangeACLRequest_KIND_GRANT, Principal: &peerpb.Ref{System: 1, Id: 7}, Rights: 1, MaxUsage: -1}
		change(in)
		return in
	}
	for name, in := range map[string]*peerpb.ChangeACLRequest{
		"NoKind": change(func(c *peerpb.ChangeACLRequest) { c.Kind = 0 }), "UnknownKind": change(func(c *peerpb.ChangeACLRequest) { c.Kind = 9 }),
		"NoPrincipal": change(func(c *peerpb.ChangeACLRequest) { c.Principal = nil }), "NoRights": change(func(c *peerpb.ChangeACLRequest) { c.Rights = 0 }),
		"Bits": change(func(c *peerpb.ChangeACLRequest) { c.Rights = 0x40 }), "Usage": change(func(c *peerpb.ChangeACLRequest) { c.MaxUsage = -2 }),
		"Stamp": change(func(c *peerpb.ChangeACLRequest) { c.Start = []byte{1} }), "LongStamp": change(func(c *peerpb.ChangeACLRequest) { c.End = make([]byte, 9) }),
		"Link": change(func(c *peerpb.ChangeACLRequest) { c.Link = make([]byte, values.MaxHiddenLink+1) }),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.ChangeACL(t.Context(), in)
			refused(t, err)
		})
	}
	_, err := c.Authorize(t.Context(), &peerpb.AuthorizeRequest{Call: good(), Link: []byte(link), Filename: long})
	refused(t, err)
	_, err = c.Lookup(t.Context(), &peerpb.LookupRequest{Call: good()})
	refused(t, err)
	_, err = c.Lookup(t.Context(), &peerpb.LookupRequest{Call: good(), Principals: make([]uint64, keyserver.MaxLookup+1)})
	refused(t, err)
	if _, err := c.Authorize(t.Context(), &peerpb.AuthorizeRequest{Call: good(), Link: []byte(link), Filename: strings.Repeat("x", maxPackage)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a package over the limit: %v", err)
	}
	stream, err := c.HMACStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.CloseAndRecv()
	refused(t, err) // it has no deadline
	if calls := w.keys.seen(); len(calls) > 0 {
		t.Errorf("%d calls arrived", len(calls))
	}
}

// TestRefusals checks that a refusal keeps its code, text and reason if the code has the same meaning here. Codes about
// the state of the peer become one code.
func TestRefusals(t *testing.T) {
	cases := map[string]struct {
		reason string
		answer error
		want   fault.Code
		audit  fault.Reason
	}{
		"ACL":       {"the list refuses", fault.New(fault.ACLDenied, "no entry").Audited(fault.ReasonACLDenied), fault.ACLDenied, fault.ReasonACLDenied},
		"NoKey":     {"there is no such key", fault.New(fault.KeyNotFound, "no key").Audited(fault.ReasonObjectNotFound), fault.KeyNotFound, fault.ReasonObjectNotFound},
		"Busy":      {"the peer has its own troubles", fault.Temporary(fault.AuditUnavailable, fault.ScopeProcess, time.Second, "later"), fault.PeerUnavailable, fault.ReasonPeerUnavailable},
		"Session":   {"a code about the peer's own callers must not send ours to log in", fault.New(fault.SessionNotFound, "log in"), fault.OpFailed, fault.ReasonFailed},
		"Unknown":   {"a code of a later version", fault.New("SOMETHING_NEW", "new"), fault.OpFailed, fault.ReasonFailed},
		"NoFault":   {"what is no fault has no words", errors.New("secret cause"), fault.OpFailed, fault.ReasonFailed},
		"BadReason": {"a reason that is none is not recorded", fault.New(fault.ACLDenied, "x").Audited("a b\n"), fault.ACLDenied, fault.ReasonFailed},
		"BadDetail": {"a sentence is cut to what can be shown", fault.New(fault.ACLDenied, "%s", "a\x00b\n"+strings.Repeat("é", 1000)).Audited(fault.ReasonACLDenied), fault.ACLDenied, fault.ReasonACLDenied},
		"Panic":     {"a panic is a failure", nil, fault.OpFailed, fault.ReasonFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, patience)
			w.keys.answer = func(context.Context, keyserver.Caller) error {
				if tc.answer == nil {
					panic("secret cause")
				}
				return tc.answer
			}
			_, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link})
			f := code(t, err, tc.want)
			if f.Reason != tc.audit || len(f.Detail) > maxDetail+64 || strings.ContainsAny(f.Detail, "\x00\n") || strings.Contains(f.Detail, "secret") {
				t.Errorf("%s: got %s %q", tc.reason, f.Reason, f.Detail)
			}
			if n := len(w.keys.seen()); n != 1 {
				t.Errorf("%s: asked %d times", tc.reason, n)
			}
		})
	}
}

// TestBrokenConnections checks that a call is repeated with the same call key if the connection breaks after the peer
// executed it. A change without a response is not reported as failed.
func TestBrokenConnections(t *testing.T) {
	change := keyserver.ACLChange{Link: link, Principal: keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(7)}, Rights: keyserver.Read, MaxUsage: -1}
	calls := map[string]struct {
		call   func(ctx context.Context, at keyserver.Federated, by keyserver.Caller) error
		broken fault.Code // if no attempt gets a response
	}{
		"Authorize": {func(ctx context.Context, at keyserver.Federated, by keyserver.Caller) error {
			_, err := at.AuthorizeKey(ctx, by, keyserver.Use{Link: link})
			return err
		}, fault.PeerUnavailable},
		"ACL": {func(ctx context.Context, at keyserver.Federated, by keyserver.Caller) error {
			_, err := at.ACL(ctx, by, link)
			return err
		}, fault.PeerUnavailable},
		"HMAC": {func(ctx context.Context, at keyserver.Federated, by keyserver.Caller) error {
			_, err := at.HMAC(ctx, by, keyserver.HMACRequest{Link: link, Message: message{text: []byte("short")}})
			return err
		}, fault.PeerUnavailable},
		"Grant": {func(ctx context.Context, at keyserver.Federated, by keyserver.Caller) error {
			return at.GrantACL(ctx, by, change)
		}, fault.PeerNoAnswer},
	}
	for name, tc := range calls {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, patience)
			var cuts atomic.Int32
			cuts.Store(1)
			w.keys.answer = func(context.Context, keyserver.Caller) error {
				if cuts.Add(-1) >= 0 {
					w.at.cut()
				}
				return nil
			}
			if err := tc.call(t.Context(), w.ask(), caller(t)); err != nil {
				t.Fatalf("broken once: %v", err)
			}
			seen := w.keys.seen()
			if len(seen) != 2 || seen[0].Peer.Key != seen[1].Peer.Key {
				t.Errorf("broken once: asked %d times, or with several keys", len(seen))
			}
			cuts.Store(100)
			code(t, tc.call(t.Context(), w.ask(), caller(t)), tc.broken)
			seen = w.keys.seen()[2:]
			if len(seen) != maxAttempts || seen[0].Peer.Key != seen[2].Peer.Key || seen[0].Peer.Key == w.keys.seen()[0].Peer.Key {
				t.Errorf("always broken: asked %d times, or the keys do not tell calls apart", len(seen))
			}
		})
	}
}

// TestSlowPeer checks that a call to a slow peer ends at its time limit and is not repeated.
func TestSlowPeer(t *testing.T) {
	calls := map[string]struct {
		call func(ctx context.Context, at keyserver.Federated) error
		want fault.Code
	}{
		"Use": {func(ctx context.Context, at keyserver.Federated) error {
			_, err := at.AuthorizeKey(ctx, caller(t), keyserver.Use{Link: link})
			return err
		}, fault.PeerUnavailable},
		"Change": {func(ctx context.Context, at keyserver.Federated) error {
			return at.GrantACL(ctx, caller(t), keyserver.ACLChange{Link: link, Principal: keyserver.PrincipalRef{ID: values.IDFromUint64(1)}, Rights: 1, MaxUsage: -1})
		}, fault.PeerNoAnswer},
		"Stream": {func(ctx context.Context, at keyserver.Federated) error {
			_, err := at.HMAC(ctx, caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, 3*pieceLen)}})
			return err
		}, fault.PeerUnavailable},
	}
	for name, tc := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, patience)
			for range connections { // connects before the time is measured
				if err := tc.call(t.Context(), w.ask()); err != nil {
					t.Fatal(err)
				}
			}
			before := len(w.keys.seen())
			w.client.Timeout = 2 * time.Second
			w.keys.set(func(ctx context.Context, _ keyserver.Caller) error { <-ctx.Done(); return ctx.Err() })
			code(t, tc.call(t.Context(), w.ask()), tc.want)
			if n := len(w.keys.seen()) - before; n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// TestCallersThatGoAway checks that a canceled call returns the cancellation, and does not count as a failure of the
// peer.
func TestCallersThatGoAway(t *testing.T) {
	w := newWorld(t, patience)
	gone, cancel := context.WithCancel(t.Context())
	w.keys.answer = func(ctx context.Context, _ keyserver.Caller) error { cancel(); <-ctx.Done(); return ctx.Err() }
	for range 2 { // first during the call, then before the call
		if _, err := w.ask().AuthorizeKey(gone, caller(t), keyserver.Use{Link: link}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if p := w.held(); p.breaker.fails > 0 || len(p.places) > 0 {
		t.Errorf("%d failures, %d places taken", p.breaker.fails, len(p.places))
	}
}

// TestCallKeys checks that a call with a known nonce counts as repeated only if all of its other values are equal. A
// streamed call never counts as repeated.
func TestCallKeys(t *testing.T) {
	w := newWorld(t, patience)
	c := peerpb.NewKeyServerClient(w.raw(t, w.clientID))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	by := callOf(caller(t))
	last := func(t *testing.T, err error) *keyserver.PeerCall {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		seen := w.keys.seen()
		return seen[len(seen)-1].Peer
	}
	authorize := func(change func(*peerpb.AuthorizeRequest)) func(*testing.T) *keyserver.PeerCall {
		return func(t *testing.T) *keyserver.PeerCall {
			in := &peerpb.AuthorizeRequest{Call: proto.CloneOf(by), Link: []byte(link), Filename: "file"}
			change(in)
			_, err := c.Authorize(ctx, in)
			return last(t, err)
		}
	}
	hmac := func(data string) func(*testing.T) *keyserver.PeerCall {
		return func(t *testing.T) *keyserver.PeerCall {
			_, err := c.HMAC(ctx, &peerpb.HMACRequest{Call: by, Link: []byte(link), Data: []byte(data)})
			return last(t, err)
		}
	}
	grant := func(change func(*peerpb.ChangeACLRequest)) func(*testing.T) *keyserver.PeerCall {
		return func(t *testing.T) *keyserver.PeerCall {
			in := &peerpb.ChangeACLRequest{Call: by, Link: []byte(link), Kind: 1, Principal: &peerpb.Ref{System: 1, Id: 7}, Rights: 1, MaxUsage: -1}
			change(in)
			_, err := c.ChangeACL(ctx, in)
			return last(t, err)
		}
	}
	stamp := []byte{0, 0, 0, 0, 0, 0, 0, 1}
	calls := map[string]func(*testing.T) *keyserver.PeerCall{
		"Authorize": authorize(func(*peerpb.AuthorizeRequest) {}),
		"OtherFile": authorize(func(in *peerpb.AuthorizeRequest) { in.Filename = "other" }),
		"OtherKey": authorize(func(in *peerpb.AuthorizeRequest) {
			in.Link = []byte(values.NewHiddenLink(2, values.IDFromUint64(43)))
		}),
		"OtherCaller":   authorize(func(in *peerpb.AuthorizeRequest) { in.Call.Principal.Ref.Id++ }),
		"OtherNonce":    authorize(func(in *peerpb.AuthorizeRequest) { in.Call.Nonce[0]++ }),
		"HMAC":          hmac("message"),
		"OtherMessage":  hmac("massage"),
		"LongerMessage": hmac("message "),
		"EmptyMessage":  hmac(""),
		"Grant":         grant(func(*peerpb.ChangeACLRequest) {}),
		"Amend":         grant(func(in *peerpb.ChangeACLRequest) { in.Kind = 2 }),
		"Revoke":        grant(func(in *peerpb.ChangeACLRequest) { in.Kind = 3 }),
		"OtherGrantee":  grant(func(in *peerpb.ChangeACLRequest) { in.Principal.Id++ }),
		"OtherRights":   grant(func(in *peerpb.ChangeACLRequest) { in.Rights = 4 }),
		"OtherLimit":    grant(func(in *peerpb.ChangeACLRequest) { in.MaxUsage = 1 }),
		"Starts":        grant(func(in *peerpb.ChangeACLRequest) { in.Start = stamp }),
		"Ends":          grant(func(in *peerpb.ChangeACLRequest) { in.End = stamp }),
	}
	names := map[keyserver.CallKey]string{}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			first := call(t)
			if other, taken := names[first.Key]; taken {
				t.Errorf("it has the key of %s", other)
			}
			names[first.Key] = name
			if again := call(t); again.Key != first.Key || again.Single || first.Single {
				t.Error("its repetition does not count as one")
			}
		})
	}
	_, err := w.ask().HMAC(ctx, caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, 3*pieceLen)}})
	if !last(t, err).Single {
		t.Error("a streamed message may be repeated")
	}
}

// TestMalformedCallsAreLogged checks that the log has the caller and the cause of a malformed call, because such a call
// has no audit row. The number of log lines is limited.
func TestMalformedCallsAreLogged(t *testing.T) {
	w := newWorld(t, patience)
	c := peerpb.NewKeyServerClient(w.raw(t, w.clientID))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	by := callOf(caller(t))
	by.RequestId, by.Nonce = "request-17", nil
	if _, err := c.Authorize(ctx, &peerpb.AuthorizeRequest{Call: by, Link: []byte(link)}); err == nil {
		t.Error("it was done")
	}
	stream, err := c.HMACStream(ctx)
	if err == nil {
		err = stream.Send(&peerpb.HMACPiece{Call: by, Link: []byte(link)})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.CloseAndRecv(); err == nil {
		t.Error("it was done")
	}
	by.RequestId = "\x1b[31m"
	if _, err := c.ReadACL(ctx, &peerpb.KeyRequest{Call: by, Link: []byte(link)}); err == nil {
		t.Error("it was done")
	}
	const entry = `"level":"WARN","msg":"a peer's call was malformed","peer":1,"method":"/keyserver.peer.v1.KeyServer/%s","requestId":"%s","detail":"%s"}`
	lines := w.log.lines()
	for i, want := range []string{
		fmt.Sprintf(entry, "Authorize", "request-17", "the nonce must have 16 bytes"),
		fmt.Sprintf(entry, "HMACStream", "request-17", "the nonce must have 16 bytes"),
		fmt.Sprintf(entry, "ReadACL", "", "the request id must be 1 to 64 letters, digits, dots, hyphens and underscores"),
	} {
		if i >= len(lines) || !strings.HasSuffix(lines[i], want) {
			t.Errorf("logged %q, want %s", lines, want)
		}
	}
	for range 10 * complaintsAtOnce {
		_, _ = c.ReadACL(ctx, &peerpb.KeyRequest{Call: by})
	}
	if n := len(w.log.lines()); n > 2*complaintsAtOnce {
		t.Errorf("%d lines", n)
	}
}

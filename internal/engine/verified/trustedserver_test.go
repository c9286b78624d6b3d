package verified_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const peerSystem = 7

// trustLiar is a real key server with wrong results for peers and principal trusts.
type trustLiar struct {
	keyserver.Port
	deceit
	another bool // stores other values than requested
	moved   bool // shows another transport principal after the write
}

func (l *trustLiar) TrustedServers(ctx context.Context, by keyserver.Caller) ([]keyserver.TrustedServer, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	servers, err := l.Port.TrustedServers(ctx, by)
	if l.moved && l.writes > 0 {
		for i := range servers {
			servers[i].Transport = values.IDFromUint64(12345)
		}
	}
	return servers, err
}

func (l *trustLiar) AddTrustedServer(ctx context.Context, by keyserver.Caller, n keyserver.NewTrustedServer) (added keyserver.TrustedServerAdded, err error) {
	if l.another {
		n.Blob.Port++
	}
	err = l.send(func() error { added, err = l.Port.AddTrustedServer(ctx, by, n); return err })
	return added, err
}

func (l *trustLiar) UpdateTrustedServer(ctx context.Context, by keyserver.Caller, c keyserver.TrustedServerChange) error {
	if l.another {
		other := "other words"
		c.FriendlyName, c.Description = &other, &other
	}
	return l.send(func() error { return l.Port.UpdateTrustedServer(ctx, by, c) })
}

func (l *trustLiar) RemoveTrustedServer(ctx context.Context, by keyserver.Caller, s keyserver.SystemID) (r keyserver.TrustedServerRemoved, err error) {
	err = l.send(func() error { r, err = l.Port.RemoveTrustedServer(ctx, by, s); return err })
	return r, err
}

func (l *trustLiar) PrincipalTrusts(ctx context.Context, by keyserver.Caller, f keyserver.PrincipalTrustFilter) ([]keyserver.PrincipalTrust, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	return l.Port.PrincipalTrusts(ctx, by, f)
}

func (l *trustLiar) CreatePrincipalTrust(ctx context.Context, by keyserver.Caller, t keyserver.PrincipalTrust) (id keyserver.ID, err error) {
	if l.another {
		t.Flag = keyserver.Expose
	}
	id = values.IDFromUint64(12345)
	err = l.send(func() error { id, err = l.Port.CreatePrincipalTrust(ctx, by, t); return err })
	return id, err
}

func (l *trustLiar) UpdatePrincipalTrust(ctx context.Context, by keyserver.Caller, c keyserver.PrincipalTrustChange) error {
	if l.another {
		c.Flag = keyserver.Expose
	}
	return l.send(func() error { return l.Port.UpdatePrincipalTrust(ctx, by, c) })
}

func (l *trustLiar) DeletePrincipalTrust(ctx context.Context, by keyserver.Caller, id keyserver.ID) error {
	return l.send(func() error { return l.Port.DeletePrincipalTrust(ctx, by, id) })
}

// trustWorld is a key server with one peer, one principal trust and a trustLiar, and the service that calls the liar.
type trustWorld struct {
	*verified.Service
	liar  *trustLiar
	admin keyserver.Caller
	other keyserver.Caller // without a principal trust
	row   keyserver.PrincipalTrust
	peer  keyserver.NewTrustedServer // registered
	free  keyserver.NewTrustedServer // can be registered
}

func newTrustWorld(t *testing.T, f *enginetest.Fixture) *trustWorld {
	t.Helper()
	honest := verified.New(f.Engine)
	w := &trustWorld{liar: &trustLiar{Port: f.Engine}, admin: f.Admin}
	w.Service = verified.New(w.liar)
	w.other = f.Add(t, keyserver.PasswordPrincipal, "other", nil, nil)
	ca, err := pki.NewCA("CA of peers", f.Clock.Now(), rand.Reader)
	fatal(t, err)
	_, err = honest.AddTrustedCA(ctx, w.admin, ca.Certificate.Raw)
	fatal(t, err)
	w.peer, w.free = newPeer(t, f, ca, peerSystem, "peer"), newPeer(t, f, ca, peerSystem+1, "free")
	_, err = honest.AddTrustedServer(ctx, w.admin, w.peer)
	fatal(t, err)
	saved, err := honest.CreatePrincipalTrust(ctx, w.admin, keyserver.PrincipalTrust{Principal: w.admin.Principal.ID, Server: peerSystem, Flag: keyserver.Expose})
	fatal(t, err)
	w.row = *saved.Trust
	return w
}

func newPeer(t *testing.T, f *enginetest.Fixture, ca pki.Identity, system keyserver.SystemID, subject string) keyserver.NewTrustedServer {
	t.Helper()
	leaf, err := ca.IssueServer(subject, nil, nil, f.Clock.Now(), rand.Reader)
	fatal(t, err)
	chain, err := pki.EncodeChain(leaf.Certificate)
	fatal(t, err)
	return keyserver.NewTrustedServer{
		Blob:         keyserver.TrustBlob{System: system, ServerName: "192.0.2.7", Port: 9443, Chain: chain},
		FriendlyName: subject, Description: "for tests",
	}
}

type trustWrite struct {
	do  func(w *trustWorld) (claims bool, err error)
	bad fault.Code // the code if the write reads back wrong
}

var trustWrites = map[string]trustWrite{
	"AddTrustedServer": {bad: fault.NotPersisted, do: func(w *trustWorld) (bool, error) {
		r, err := w.AddTrustedServer(ctx, w.admin, w.free)
		return r.Saved || r.ACLSideEffect != "", err
	}},
	"ReplaceTrustedServer": {bad: fault.NotPersisted, do: func(w *trustWorld) (bool, error) {
		n := w.free
		n.Blob.System, n.Replace = peerSystem, true
		r, err := w.AddTrustedServer(ctx, w.admin, n)
		return r.Saved || r.ACLSideEffect != "", err
	}},
	"RenameTrustedServer": {bad: fault.NotPersisted, do: func(w *trustWorld) (bool, error) {
		r, err := w.UpdateTrustedServer(ctx, w.admin, keyserver.TrustedServerChange{System: peerSystem, FriendlyName: ptr("renamed")})
		return r.Saved, err
	}},
	"DescribeTrustedServer": {bad: fault.NotPersisted, do: func(w *trustWorld) (bool, error) {
		r, err := w.UpdateTrustedServer(ctx, w.admin, keyserver.TrustedServerChange{System: peerSystem, Description: ptr("")})
		return r.Saved, err
	}},
	"RemoveTrustedServer": {bad: fault.NotRemoved, do: func(w *trustWorld) (bool, error) {
		r, err := w.RemoveTrustedServer(ctx, w.admin, peerSystem)
		return r.Removed != nil || r.ACLSideEffect+r.PrincipalTrustSideEffect+r.TransportPrincipalSideEffect != "", err
	}},
	"CreatePrincipalTrust": {bad: fault.NotPersisted, do: func(w *trustWorld) (bool, error) {
		r, err := w.CreatePrincipalTrust(ctx, w.admin, keyserver.PrincipalTrust{Principal: w.other.Principal.ID, Server: peerSystem, Flag: keyserver.Restrict})
		return r.Saved, err
	}},
	"UpdatePrincipalTrust": {bad: fault.NotPersisted, do: func(w *trustWorld) (bool, error) {
		r, err := w.UpdatePrincipalTrust(ctx, w.admin, keyserver.PrincipalTrustChange{ID: w.row.ID, Flag: keyserver.Restrict})
		return r.Saved, err
	}},
	"DeletePrincipalTrust": {bad: fault.NotRemoved, do: func(w *trustWorld) (bool, error) {
		r, err := w.DeletePrincipalTrust(ctx, w.admin, w.row.ID)
		return r.Gone, err
	}},
}

func TestTrustVerdicts(t *testing.T) {
	gone := fault.New(fault.StoreUnavailable, "gone")
	lies := map[string]struct {
		lie  func(*trustLiar)
		code func(trustWrite) fault.Code
		only []string // empty means every write
	}{
		"Honest":      {func(*trustLiar) {}, func(trustWrite) fault.Code { return "" }, nil},
		"Swallowed":   {func(l *trustLiar) { l.swallow = true }, func(w trustWrite) fault.Code { return w.bad }, nil},
		"Lost":        {func(l *trustLiar) { l.dropAfter = errors.New("connection reset") }, func(trustWrite) fault.Code { return fault.OpFailed }, nil},
		"Unread":      {func(l *trustLiar) { l.readFails = gone }, func(trustWrite) fault.Code { return gone.Code }, nil},
		"Moved":       {func(l *trustLiar) { l.moved = true }, func(w trustWrite) fault.Code { return w.bad }, []string{"ReplaceTrustedServer"}},
		"AnotherSent": {func(l *trustLiar) { l.another = true }, func(w trustWrite) fault.Code { return w.bad }, []string{"AddTrustedServer", "ReplaceTrustedServer", "RenameTrustedServer", "DescribeTrustedServer", "CreatePrincipalTrust", "UpdatePrincipalTrust"}},
	}
	for name, write := range trustWrites {
		for lie, tc := range lies {
			if len(tc.only) > 0 && !slices.Contains(tc.only, name) {
				continue
			}
			t.Run(name+"/"+lie, func(t *testing.T) {
				w := newTrustWorld(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
				tc.lie(w.liar)
				want := tc.code(write)
				if claims, err := write.do(w); fault.CodeOf(err) != want || claims != (want == "") {
					t.Errorf("got success %v and %v, want %q", claims, err, want)
				}
				if w.liar.writes != 1 {
					t.Errorf("%d writes were sent: nothing that may have had an effect is repeated", w.liar.writes)
				}
			})
		}
	}
}

func TestTrustRefusedBeforeSending(t *testing.T) {
	w := newTrustWorld(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
	long := strings.Repeat("a", 1025)
	add := func(change func(*keyserver.NewTrustedServer)) func() error {
		return func() error {
			n := w.free
			change(&n)
			_, err := w.AddTrustedServer(ctx, w.admin, n)
			return err
		}
	}
	update := func(system keyserver.SystemID, c keyserver.TrustedServerChange) func() error {
		return func() error {
			c.System = system
			_, err := w.UpdateTrustedServer(ctx, w.admin, c)
			return err
		}
	}
	trust := func(t keyserver.PrincipalTrust) func() error {
		return func() error { _, err := w.CreatePrincipalTrust(ctx, w.admin, t); return err }
	}
	list := func(f keyserver.PrincipalTrustFilter) func() error {
		return func() error { _, err := w.PrincipalTrusts(ctx, w.admin, f); return err }
	}
	cases := map[string]struct {
		reason string
		do     func() error
		code   fault.Code
	}{
		"NoChain":         {"a peer shows who it is", add(func(n *keyserver.NewTrustedServer) { n.Blob.Chain = nil }), fault.BadRequest},
		"PortZero":        {"a blob that has no spelling", add(func(n *keyserver.NewTrustedServer) { n.Blob.Port = 0 }), fault.BadRequest},
		"NoFriendlyName":  {"a peer without a name for people", add(func(n *keyserver.NewTrustedServer) { n.FriendlyName = " " }), fault.BadRequest},
		"LongDescription": {"a description without bound", add(func(n *keyserver.NewTrustedServer) { n.Description = long }), fault.BadRequest},
		"HiddenCharacter": {"a listing that reads otherwise", add(func(n *keyserver.NewTrustedServer) { n.Description = "a\u202eb" }), fault.BadRequest},
		"Registered":      {"established by reading", add(func(n *keyserver.NewTrustedServer) { n.Blob.System = peerSystem }), fault.AlreadyExists},
		"NothingToChange": {"neither field", update(peerSystem, keyserver.TrustedServerChange{}), fault.BadRequest},
		"EmptyName":       {"an empty name", update(peerSystem, keyserver.TrustedServerChange{FriendlyName: ptr("")}), fault.BadRequest},
		"LongChange":      {"a description without bound", update(peerSystem, keyserver.TrustedServerChange{Description: &long}), fault.BadRequest},
		"NoSuchPeer":      {"established by reading", update(9, keyserver.TrustedServerChange{FriendlyName: ptr("x")}), fault.NotFound},
		"RemoveNoPeer":    {"likewise", func() error { _, err := w.RemoveTrustedServer(ctx, w.admin, 9); return err }, fault.NotFound},
		"EmptySearch":     {"an empty name is no wildcard", func() error { _, err := w.TrustedServersNamed(ctx, w.admin, ""); return err }, fault.BadRequest},
		"SearchMiss":      {"a miss is no failure of the service", func() error { _, err := w.TrustedServersNamed(ctx, w.admin, "x"); return err }, fault.NotFound},
		"ZeroPrincipal":   {"zero names nobody", trust(keyserver.PrincipalTrust{Server: peerSystem, Flag: keyserver.Expose}), fault.BadRequest},
		"NoFlag":          {"a flag word of no meaning", trust(keyserver.PrincipalTrust{Principal: w.other.Principal.ID, Server: peerSystem, Flag: 3}), fault.BadRequest},
		"SecondRow":       {"one row for a principal and a peer", trust(keyserver.PrincipalTrust{Principal: w.admin.Principal.ID, Server: peerSystem, Flag: keyserver.Restrict}), fault.AlreadyExists},
		"ChangeToNone": {"likewise", func() error {
			_, err := w.UpdatePrincipalTrust(ctx, w.admin, keyserver.PrincipalTrustChange{ID: w.row.ID})
			return err
		}, fault.BadRequest},
		"ChangeNoRow": {"established by reading", func() error {
			_, err := w.UpdatePrincipalTrust(ctx, w.admin, keyserver.PrincipalTrustChange{ID: values.IDFromUint64(3), Flag: keyserver.Expose})
			return err
		}, fault.NotFound},
		"DeleteNoRow":   {"likewise", func() error { _, err := w.DeletePrincipalTrust(ctx, w.admin, keyserver.ID{}); return err }, fault.NotFound},
		"LongPage":      {"a page that is longer than may be", list(keyserver.PrincipalTrustFilter{Limit: 501}), fault.BadRequest},
		"OffsetAlone":   {"an offset into no window", list(keyserver.PrincipalTrustFilter{Offset: 1}), fault.BadRequest},
		"OffsetBelow":   {"an offset before the start", list(keyserver.PrincipalTrustFilter{Limit: 1, Offset: -1}), fault.BadRequest},
		"NegativeLimit": {"a limit of no meaning", list(keyserver.PrincipalTrustFilter{Limit: -1}), fault.BadRequest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.do(); fault.CodeOf(err) != tc.code {
				t.Errorf("%s: got %v, want %s", tc.reason, err, tc.code)
			}
			if w.liar.writes != 0 {
				t.Errorf("%s: something was sent", tc.reason)
			}
		})
	}
}

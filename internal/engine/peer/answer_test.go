package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// liar is a registered peer that sends invalid responses.
type liar struct {
	peerpb.UnimplementedKeyServerServer
	authorize *peerpb.AuthorizeResponse
	mac       []byte
	key       *peerpb.KeyResponse
	acl       *peerpb.ACLResponse
	lookup    *peerpb.LookupResponse
}

func (l *liar) Authorize(context.Context, *peerpb.AuthorizeRequest) (*peerpb.AuthorizeResponse, error) {
	return l.authorize, nil
}

func (l *liar) HMAC(context.Context, *peerpb.HMACRequest) (*peerpb.HMACResponse, error) {
	return &peerpb.HMACResponse{Mac: l.mac}, nil
}

func (l *liar) HMACStream(stream grpc.ClientStreamingServer[peerpb.HMACPiece, peerpb.HMACResponse]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return stream.SendAndClose(&peerpb.HMACResponse{Mac: l.mac})
		}
	}
}

func (l *liar) ReadKey(context.Context, *peerpb.KeyRequest) (*peerpb.KeyResponse, error) {
	return l.key, nil
}

func (l *liar) ReadACL(context.Context, *peerpb.KeyRequest) (*peerpb.ACLResponse, error) {
	return l.acl, nil
}

func (l *liar) Lookup(context.Context, *peerpb.LookupRequest) (*peerpb.LookupResponse, error) {
	return l.lookup, nil
}

// lying returns a world whose server is a liar.
func lying(t *testing.T) (*world, *liar) {
	t.Helper()
	w, l := newWorld(t, patience), &liar{}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := NewGate(w.knows, w.serverID.certificate, time.Now, slog.New(slog.DiscardHandler))
	srv := grpc.NewServer(grpc.Creds(gate))
	peerpb.RegisterKeyServerServer(srv, l)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(at) }()
	t.Cleanup(func() { srv.Stop(); <-done; gate.Close() })
	port := netip.MustParseAddrPort(at.Addr().String()).Port()
	w.asked.Port = port
	w.known.forget(func(r *registry) { r.servers[0].Port = port })
	return w, l
}

// TestLyingPeers checks that invalid responses of a peer are rejected entirely.
func TestLyingPeers(t *testing.T) {
	w, l := lying(t)
	entry := func(change func(*peerpb.ACLEntry)) *peerpb.ACLResponse {
		e := &peerpb.ACLEntry{Id: 1, Principal: &peerpb.Ref{System: 1, Id: 7}, Rights: 1, MaxUsage: -1}
		change(e)
		return &peerpb.ACLResponse{Entries: []*peerpb.ACLEntry{e}}
	}
	padded := func(m proto.Message) {
		m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 100, protowire.BytesType), make([]byte, maxAnswer)))
	}
	acl := func() error { _, err := w.ask().ACL(t.Context(), caller(t), link); return err }
	key := func() error { _, err := w.ask().Key(t.Context(), caller(t), link); return err }
	hmac := func(n int) func() error {
		return func() error {
			_, err := w.ask().HMAC(t.Context(), caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, n)}})
			return err
		}
	}
	authorize := func() error {
		_, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link})
		return err
	}
	lookup := func() error {
		_, err := w.ask().LookupPrincipals(t.Context(), caller(t), []keyserver.PrincipalRef{{System: 2, ID: values.IDFromUint64(5)}})
		return err
	}
	cases := map[string]struct {
		lie func()
		ask func() error
		ok  bool
	}{
		"ACL":           {func() { l.acl = entry(func(*peerpb.ACLEntry) {}) }, acl, true},
		"EmptyACL":      {func() { l.acl = &peerpb.ACLResponse{} }, acl, true},
		"NoRights":      {func() { l.acl = entry(func(e *peerpb.ACLEntry) { e.Rights = 0 }) }, acl, false},
		"UnknownRights": {func() { l.acl = entry(func(e *peerpb.ACLEntry) { e.Rights = 0xffff }) }, acl, false},
		"UsageLimit":    {func() { l.acl = entry(func(e *peerpb.ACLEntry) { e.MaxUsage = -99 }) }, acl, false},
		"NegativeUse":   {func() { l.acl = entry(func(e *peerpb.ACLEntry) { e.Used = -1 }) }, acl, false},
		"NoPrincipal":   {func() { l.acl = entry(func(e *peerpb.ACLEntry) { e.Principal = nil }) }, acl, false},
		"ShortStamp":    {func() { l.acl = entry(func(e *peerpb.ACLEntry) { e.End = []byte{1} }) }, acl, false},
		"TwoEntries": {func() {
			l.acl = entry(func(*peerpb.ACLEntry) {})
			l.acl.Entries = append(l.acl.Entries, l.acl.Entries[0])
		}, acl, false},
		"LongList":       {func() { l.acl = &peerpb.ACLResponse{Entries: manyEntries(maxEntries + 1)} }, acl, false},
		"LongestList":    {func() { l.acl = &peerpb.ACLResponse{Entries: manyEntries(maxEntries)} }, acl, true},
		"Key":            {func() { l.key = &peerpb.KeyResponse{Algorithm: "AES-256", KeyBytes: 32} }, key, true},
		"Algorithm":      {func() { l.key = &peerpb.KeyResponse{Algorithm: "ROT-13", KeyBytes: 32} }, key, false},
		"ShortKey":       {func() { l.key = &peerpb.KeyResponse{Algorithm: "AES-256", KeyBytes: 16} }, key, false},
		"HugeKey":        {func() { l.key = &peerpb.KeyResponse{Algorithm: "HMAC-SHA384", KeyBytes: 1<<32 - 1} }, key, false},
		"Life":           {func() { l.key = aged(func(*peerpb.KeyLife) {}) }, key, true},
		"LifeOfOld":      {func() { l.key = aged(func(k *peerpb.KeyLife) { k.Reset() }) }, key, false},
		"LifeState":      {func() { l.key = aged(func(k *peerpb.KeyLife) { k.State = "fine" }) }, key, false},
		"LifeLineage":    {func() { l.key = aged(func(k *peerpb.KeyLife) { k.Lineage = 0 }) }, key, false},
		"LifeGeneration": {func() { l.key = aged(func(k *peerpb.KeyLife) { k.Generation = 0 }) }, key, false},
		"LifeTime":       {func() { l.key = aged(func(k *peerpb.KeyLife) { k.LastUsedAt = 1 << 62 }) }, key, false},
		"LifeUses":       {func() { l.key = aged(func(k *peerpb.KeyLife) { k.Uses = -1 }) }, key, false},
		"MAC":            {func() { l.mac = make([]byte, keyserver.MACSize) }, hmac(1), true},
		"StreamedMAC":    {func() { l.mac = make([]byte, keyserver.MACSize) }, hmac(3 * pieceLen), true},
		"ShortMAC":       {func() { l.mac = make([]byte, keyserver.MACSize-1) }, hmac(1), false},
		"LongMAC":        {func() { l.mac = make([]byte, keyserver.MACSize+1) }, hmac(3 * pieceLen), false},
		"Grant":          {func() { l.authorize = &peerpb.AuthorizeResponse{} }, authorize, true},
		"LongAnswer":     {func() { l.authorize = &peerpb.AuthorizeResponse{}; padded(l.authorize) }, authorize, false},
		"ManyPrincipals": {func() { l.lookup = &peerpb.LookupResponse{Principals: manyPrincipals(keyserver.MaxLookup + 1)} }, lookup, false},
		"Strangers":      {func() { l.lookup = &peerpb.LookupResponse{Principals: manyPrincipals(keyserver.MaxLookup)} }, lookup, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.lie()
			err := tc.ask()
			if tc.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if f := code(t, err, fault.OpFailed); f.Retryable {
				t.Error("it may be tried again")
			}
		})
	}
}

func manyEntries(n int) []*peerpb.ACLEntry {
	list := make([]*peerpb.ACLEntry, n)
	stamp := make([]byte, 8)
	for i := range list {
		list[i] = &peerpb.ACLEntry{
			Id: 1 << 63, Principal: &peerpb.Ref{System: 1<<32 - 1, Id: uint64(i) + 1}, Rights: uint32(keyserver.AllRights),
			MaxUsage: 1<<63 - 1, Used: 1<<63 - 1, UserRight: -1, Start: stamp, End: stamp,
		}
	}
	return list
}

func manyPrincipals(n int) []*peerpb.Principal {
	list := make([]*peerpb.Principal, n)
	for i := range list {
		list[i] = &peerpb.Principal{Ref: &peerpb.Ref{System: 2, Id: uint64(i) + 1000}, Type: "password", Name: "x"}
	}
	return list
}

// TestListsAreCountedFirst checks that the elements of a list are counted before the list is decoded.
func TestListsAreCountedFirst(t *testing.T) {
	wire, err := proto.Marshal(&peerpb.ACLResponse{Acl: 1, Entries: []*peerpb.ACLEntry{{}, {}, {}}})
	if err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]bool{2: false, 3: true} {
		if err := atMost(wire, aclEntries, most); (err == nil) != want {
			t.Errorf("three of at most %d: %v", most, err)
		}
	}
	if atMost(wire[:len(wire)-1], aclEntries, 3) == nil || atMost([]byte{0x80}, aclEntries, 3) == nil {
		t.Error("what is cut off is taken for a list")
	}
}

// TestLookupAnswers checks that a principal that cannot be shown does not count as deleted, and does not affect other
// principals. Principals that were not requested are ignored.
func TestLookupAnswers(t *testing.T) {
	w, l := lying(t)
	good := func(id uint64) *peerpb.Principal {
		return &peerpb.Principal{Ref: &peerpb.Ref{System: 2, Id: id}, Type: "certificate", Name: strings.Repeat("n", keyserver.MaxPrincipalName), Flags: 1}
	}
	bad := func(id uint64, spoil func(*peerpb.Principal)) *peerpb.Principal { p := good(id); spoil(p); return p }
	foreign := good(1)
	foreign.Ref.System = 3
	l.lookup = &peerpb.LookupResponse{Principals: []*peerpb.Principal{
		foreign, good(99), good(1), bad(1, func(p *peerpb.Principal) { p.Name = "again" }),
		bad(2, func(p *peerpb.Principal) { p.Type = "of a later version" }),
		bad(3, func(p *peerpb.Principal) { p.Name += "n" }),
		bad(4, func(p *peerpb.Principal) { p.Name = "a\nb" }),
		bad(5, func(p *peerpb.Principal) { p.Name = "" }),
		bad(6, func(p *peerpb.Principal) { p.Groups = make([]uint64, keyserver.MaxGroups+1) }),
		bad(7, func(p *peerpb.Principal) { p.Roles = make([]uint64, maxRoles+1) }),
		good(8), {},
	}}
	var asked, odd []keyserver.PrincipalRef
	for id := range uint64(10) {
		ref := keyserver.PrincipalRef{System: 2, ID: values.IDFromUint64(id)}
		asked = append(asked, ref)
		if id >= 2 && id <= 7 {
			odd = append(odd, ref)
		}
	}
	found, err := w.ask().LookupPrincipals(t.Context(), caller(t), asked)
	var unreadable *keyserver.UnreadableError
	if !errors.As(err, &unreadable) || !cmp.Equal(unreadable.Principals, odd) || fault.CodeOf(err) != fault.OpFailed {
		t.Errorf("unreadable: %+v, %v", unreadable, err)
	}
	if len(found) != 2 || found[0].ID != values.IDFromUint64(1) || found[0].Name == "again" || found[1].ID != values.IDFromUint64(8) {
		t.Errorf("found %+v", found)
	}
}

// TestListsAreBounded checks the limits of concurrent long responses, of one peer and of all peers.
func TestListsAreBounded(t *testing.T) {
	w := newWorld(t, patience)
	arrived, free := w.busy(t)
	done := make(chan error, maxPeerLists+1)
	for range maxPeerLists + 1 {
		go func() { _, err := w.ask().ACL(t.Context(), caller(t), link); done <- err }()
	}
	for range maxPeerLists {
		<-arrived
	}
	rig.Within(t, patience, "the last one waits", func() bool { return len(w.held().places) == maxPeerLists+1 })
	if n := len(w.keys.seen()); n != maxPeerLists {
		t.Errorf("%d lists are read at once", n)
	}
	free()
	for range maxPeerLists + 1 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}

	w = newWorld(t, 50*time.Millisecond)
	for range maxLists {
		w.client.lists <- struct{}{}
	}
	_, err := w.ask().ACL(t.Context(), caller(t), link)
	if f := code(t, err, fault.Overloaded); !f.Retryable || f.RetryAfter <= 0 {
		t.Errorf("got %+v", f)
	}
	if p := w.held(); len(p.places) > 0 || len(p.lists) > 0 {
		t.Error("its places are taken")
	}
}

// aged returns key metadata with an invalid life cycle.
func aged(spoil func(*peerpb.KeyLife)) *peerpb.KeyResponse {
	life := &peerpb.KeyLife{State: "verifyOnly", Lineage: 7, Generation: 2, CreatedAt: 1, StateAt: 2, Uses: 3, LastUsedAt: 4}
	spoil(life)
	return &peerpb.KeyResponse{Algorithm: "AES-256", KeyBytes: 32, Life: life}
}

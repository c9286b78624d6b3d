package peer

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// begin begins a unary call and sends only its headers.
func begin(ctx context.Context, t testing.TB, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, peerpb.KeyServer_Authorize_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// underWay returns the number of calls of a peer that have a place.
func (c *callLimiter) underWay(peer keyserver.SystemID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of, ok := c.peers[peer]; ok {
		return of.calls
	}
	return 0
}

// TestCallsThatDoNotArriveEnd checks that a call whose message does not arrive ends in time, even without a deadline:
// its time limit starts with its headers.
func TestCallsThatDoNotArriveEnd(t *testing.T) {
	for name, method := range map[string]string{"Unary": peerpb.KeyServer_Authorize_FullMethodName, "Stream": peerpb.KeyServer_HMACStream_FullMethodName} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, patience)
			w.server.maxCall, w.server.maxStream = 50*time.Millisecond, 50*time.Millisecond
			conn := w.raw(t, w.clientID)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience) // longer than the time limit of the server
			defer cancel()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(&peerpb.AuthorizeResponse{}); status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil {
				t.Errorf("got %v", err)
			}
			rig.Within(t, patience, "no place is taken", func() bool { return w.server.limiter.underWay(1) == 0 })
		})
	}
}

// TestCallsOfOnePeerAreBounded checks that a peer with too many calls in progress gets a retryable refusal. Other peers
// are served. The peer is served again when its calls have ended.
func TestCallsOfOnePeerAreBounded(t *testing.T) {
	w := newWorld(t, patience)
	other := newIdentity(t)
	w.knows.trust(other, 3, netip.AddrPort{})
	w.server.limiter.perPeer = 4
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		conn := w.raw(t, w.clientID)
		begin(ctx, t, conn)
		begin(ctx, t, conn)
	}
	rig.Within(t, patience, "every place is taken", func() bool { return w.server.limiter.underWay(1) == 4 })

	in := &peerpb.AuthorizeRequest{Call: callOf(caller(t)), Link: []byte(link)}
	_, err := peerpb.NewKeyServerClient(w.raw(t, w.clientID)).Authorize(t.Context(), in)
	if r := refusalIn(err); r == nil || r.GetCode() != string(fault.Overloaded) || !r.GetRetryable() || r.GetRetryAfterMs() <= 0 {
		t.Errorf("one more: %v", err)
	}
	_, err = w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link})
	if f := code(t, err, fault.PeerUnavailable); f.RetryAfter <= 0 {
		t.Errorf("our own client learns %+v", f)
	}
	_, err = w.ask().HMAC(t.Context(), caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, 3*pieceLen)}})
	code(t, err, fault.PeerUnavailable)
	if n := len(w.keys.seen()); n > 0 {
		t.Errorf("%d calls arrived", n)
	}

	in.Call.Principal.Ref.System = 3
	if _, err := peerpb.NewKeyServerClient(w.raw(t, other)).Authorize(t.Context(), in); err != nil {
		t.Errorf("another peer: %v", err)
	}
	cancel()
	rig.Within(t, patience, "the places are free", func() bool { return w.server.limiter.underWay(1) == 0 })
	if _, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link}); err != nil {
		t.Errorf("once it has stopped: %v", err)
	}
}

// TestFloodOfRefusedCalls checks that the server closes the connection of a peer that continues to send calls after
// refusals: gRPC remembers each refused call until its deadline.
func TestFloodOfRefusedCalls(t *testing.T) {
	w := newWorld(t, patience)
	w.server.limiter.perPeer, w.server.limiter.refused = 0, 8
	c := peerpb.NewKeyServerClient(w.raw(t, w.clientID))
	in := &peerpb.AuthorizeRequest{Call: callOf(caller(t)), Link: []byte(link)}
	refusedCalls := func(ctx context.Context, n int) (err error) {
		for range n {
			if _, err = c.Authorize(ctx, in); refusalIn(err) == nil {
				return err
			}
		}
		return nil
	}
	if err := refusedCalls(t.Context(), 100); err != nil {
		t.Errorf("calls without a deadline are not remembered: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := refusedCalls(ctx, 8); err != nil {
		t.Errorf("a few calls: %v", err)
	}
	rig.Within(t, patience, "the connection is closed", func() bool { return status.Code(refusedCalls(ctx, 1)) == codes.Unavailable })

	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	count := newCallLimiter()
	count.perPeer = 0
	if _, err := count.enter(short, 1); err == nil {
		t.Error("let in")
	}
	rig.Within(t, patience, "it is forgotten after its deadline", func() bool {
		count.mu.Lock()
		defer count.mu.Unlock()
		return len(count.peers) == 0
	})
}

// TestPlaces checks that work for a disconnected peer still occupies its place.
func TestPlaces(t *testing.T) {
	c := newCallLimiter()
	c.perPeer, c.inAll = 2, 3
	enter := func(peer keyserver.SystemID, want bool) *place {
		t.Helper()
		p, err := c.enter(t.Context(), peer)
		if (err == nil) != want {
			t.Fatalf("the peer %d with %d of %d calls: %v", peer, c.underWay(peer), c.all, err)
		}
		return p
	}
	first, _ := enter(1, true), enter(1, true)
	enter(1, false)
	second := enter(2, true)
	enter(3, false) // no place is free
	if !first.hold() {
		t.Fatal("a call that arrived cannot be worked on")
	}
	first.leave() // end of its stream
	enter(1, false)
	first.leave() // end of the work
	if first.hold() {
		t.Error("a call that has ended can be worked on")
	}
	enter(3, true)
	second.leave()
	enter(1, true)
}

// TestLargestRequests checks that the largest valid requests fit into maxPackage. A larger request is refused before it
// is read into memory.
func TestLargestRequests(t *testing.T) {
	by := caller(t)
	by.RequestID, by.Name, by.Type = strings.Repeat("r", maxRequestID), strings.Repeat("n", keyserver.MaxPrincipalName), "certificate"
	by.Principal.ID, by.Actor.ID = values.IDFromUint64(1<<63), values.IDFromUint64(1<<63)
	by.Principal.System, by.Actor.System = 1<<32-1, 1<<32-1
	by.Peer.Groups = make([]keyserver.PrincipalRef, keyserver.MaxGroups)
	handle := make([]byte, values.MaxHiddenLink)
	stamp := make([]byte, 8)
	for name, in := range map[string]proto.Message{
		"Authorize": &peerpb.AuthorizeRequest{Call: callOf(by), Link: handle, Filename: strings.Repeat("f", maxFilename)},
		"HMAC":      &peerpb.HMACRequest{Call: callOf(by), Link: handle, Data: make([]byte, pieceLen)},
		"Piece":     &peerpb.HMACPiece{Data: make([]byte, pieceLen), Last: true},
		"Opening":   &peerpb.HMACPiece{Call: callOf(by), Link: handle},
		"Key":       &peerpb.KeyRequest{Call: callOf(by), Link: handle},
		"Lookup":    &peerpb.LookupRequest{Call: callOf(by), Principals: make([]uint64, keyserver.MaxLookup)},
		"Change": &peerpb.ChangeACLRequest{
			Call: callOf(by), Link: handle, Kind: 3, Principal: refTo(by.Principal), Rights: 1<<32 - 1, MaxUsage: -1 << 63, Start: stamp, End: stamp,
		},
	} {
		if n := proto.Size(in); n > maxPackage {
			t.Errorf("%s has %d bytes, and a package at most %d", name, n, maxPackage)
		}
	}
	w := newWorld(t, patience)
	c := peerpb.NewKeyServerClient(w.raw(t, w.clientID))
	in := &peerpb.HMACRequest{Call: callOf(by), Link: handle, Data: make([]byte, pieceLen)}
	if _, err := c.HMAC(t.Context(), in); err != nil {
		t.Errorf("the largest request: %v", err)
	}
	in.Data = make([]byte, maxPackage)
	if _, err := c.HMAC(t.Context(), in); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a larger one: %v", err)
	}
}

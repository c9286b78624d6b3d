package peer

import (
	"context"
	"testing"

	"google.golang.org/grpc/connectivity"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// busy makes every call wait at the server until the returned function free is called.
func (w *world) busy(t testing.TB) (arrived <-chan struct{}, free func()) {
	t.Helper()
	at, gone := make(chan struct{}, 16), make(chan struct{})
	w.keys.answer = func(ctx context.Context, _ keyserver.Caller) error {
		at <- struct{}{}
		select {
		case <-gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return at, func() { close(gone) }
}

// held returns the client's pool for the server.
func (w *world) held() *pool {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	return w.client.pools[2]
}

func (p *pool) closed() bool {
	for _, c := range p.conns {
		if c.GetState() != connectivity.Shutdown {
			return false
		}
	}
	return true
}

// TestRecordsThatChange checks that a changed record does not affect calls in progress. A caller with the old record
// uses the current one.
func TestRecordsThatChange(t *testing.T) {
	w := newWorld(t, patience)
	earlier := w.ask()
	arrived, free := w.busy(t)
	done := make(chan error, 2)
	go func() { _, err := earlier.AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link}); done <- err }()
	go func() {
		_, err := earlier.HMAC(t.Context(), caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, 3*pieceLen)}})
		done <- err
	}()
	<-arrived
	<-arrived
	before := w.held()

	w.show(t, w.serverID)
	w.client.Changed([]keyserver.Change{{Kind: keyserver.ChangeTrustedServer, Action: keyserver.Updated}})
	go func() { _, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link}); done <- err }()
	<-arrived
	if w.held() == before || before.closed() {
		t.Error("the connections are those of the earlier record, or were closed under the calls")
	}
	free()
	for range 3 {
		if err := <-done; err != nil {
			t.Errorf("a call that was under way: %v", err)
		}
	}
	rig.Within(t, patience, "the earlier connections are closed", before.closed)

	present := w.held()
	if _, err := earlier.AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link}); err != nil {
		t.Errorf("by the earlier record: %v", err)
	}
	if w.held() != present || present.closed() {
		t.Error("an earlier record replaced a later one")
	}
}

// TestRemovedPeers checks that the client has no pool for a removed peer, and that a call with the old record does not
// connect to the peer.
func TestRemovedPeers(t *testing.T) {
	w := newWorld(t, patience)
	if _, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link}); err != nil {
		t.Fatal(err)
	}
	p := w.held()
	w.known.forget(func(r *registry) { r.servers = nil })
	w.client.Changed([]keyserver.Change{{Kind: keyserver.ChangeTrustedServer, Action: keyserver.Deleted}})
	rig.Within(t, patience, "its pool is gone", func() bool { return w.held() == nil && p.closed() })
	_, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link})
	code(t, err, fault.PeerUnavailable)
	if w.held() != nil {
		t.Error("there is a pool for it again")
	}
}

// TestCallsThatAreCutOffHere checks that a connection that this side closed does not count as a failure of the peer.
func TestCallsThatAreCutOffHere(t *testing.T) {
	w := newWorld(t, patience)
	arrived, free := w.busy(t)
	defer free()
	ask := w.ask()
	use, change, stream := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { _, err := ask.AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link}); use <- err }()
	go func() {
		change <- ask.GrantACL(t.Context(), caller(t), keyserver.ACLChange{Link: link, Principal: keyserver.PrincipalRef{ID: values.IDFromUint64(1)}, Rights: 1, MaxUsage: -1})
	}()
	go func() {
		_, err := ask.HMAC(t.Context(), caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, 3*pieceLen)}})
		stream <- err
	}()
	for range 3 {
		<-arrived
	}
	p := w.held()
	w.client.mu.Lock()
	delete(w.client.pools, 2)
	w.client.mu.Unlock()
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	code(t, <-use, fault.PeerUnavailable)
	code(t, <-stream, fault.PeerUnavailable)
	code(t, <-change, fault.PeerNoAnswer)
	if p.breaker.fails > 0 {
		t.Errorf("%d failures count against the peer", p.breaker.fails)
	}
}

package peer

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// someone is a connection with a given remote address.
type someone struct {
	net.Conn
	at     string
	closed int
}

func (s *someone) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s.at))
}
func (s *someone) Close() error { s.closed++; return nil }

func TestAcceptedConnections(t *testing.T) {
	v := newAccepted(3, 2, 4)
	connect := func(reason, at string, want bool) *acceptedConn {
		t.Helper()
		in, err := v.accept(&someone{at: at})
		if (err == nil) != want || err != nil && !errors.Is(err, errTooMany) {
			t.Errorf("%s: %v", reason, err)
		}
		return in
	}
	first := connect("one gets a pending place", "192.0.2.1:1000", true)
	second := connect("and another one of the same address", "192.0.2.1:1001", true)
	connect("a third of that address is not", "192.0.2.1:1002", false)
	connect("nor where it is spelled otherwise", "[::ffff:192.0.2.1]:1003", false)
	third := connect("another address is", "[2001:db8::1]:1000", true)
	connect("every pending place is taken", "192.0.2.9:1000", false)
	first.established()
	fourth := connect("who is inside stands there no more", "[2001:db8::2]:1000", true)
	second.established()
	connect("the house is full", "192.0.2.9:1000", false)
	third.established()
	for range 2 { // a connection may be closed twice
		if err := third.Close(); err != nil {
			t.Error(err)
		}
	}
	connect("one has left", "[2001:db8::3]:1000", true)
	connect("one network of IPv6 is one address", "[2001:db8::4]:1000", false)
	if err := fourth.Close(); err != nil {
		t.Error(err)
	}
	connect("who leaves without a word makes room, too", "[2001:db8::4]:1000", true)
}

// TestConnectionsThatSayNothing checks that silent connections block only their own address, and only while they are
// open. Connections after the handshake do not count.
func TestConnectionsThatSayNothing(t *testing.T) {
	w := newWorld(t, patience)
	ask := func() error {
		_, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link})
		return err
	}
	for range 4 { // one on each connection
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	silent := func() net.Conn {
		conn, err := net.Dial("tcp", w.at.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var held []net.Conn
	for range maxPendingFrom {
		held = append(held, silent())
	}
	if n, err := silent().Read(make([]byte, 1)); err == nil || n > 0 { // otherwise it waits until the handshake timeout
		t.Errorf("one more may stay: %v", err)
	}
	if err := ask(); err != nil {
		t.Errorf("who is inside: %v", err)
	}
	for _, conn := range held {
		_ = conn.Close()
	}
	rig.Within(t, patience, "they are forgotten", func() bool {
		return w.gate.accepted.pending.Held() == 0 && w.gate.accepted.all.Held() == connections
	})
}

// TestTheRegistryIsReadOncePerChange checks that connections of unknown clients cause no reads of the registry.
func TestTheRegistryIsReadOncePerChange(t *testing.T) {
	w := newWorld(t, patience)
	stranger := newIdentity(t)
	connect := func() {
		t.Helper()
		here, there := net.Pipe()
		k := key{newEndpointOf(t, w, stranger), 2}
		go func() {
			if conn, _, err := k.ClientHandshake(t.Context(), "", there); err == nil {
				_, _ = conn.Read(make([]byte, 1)) // wait for the refusal
			}
		}()
		if _, _, err := w.gate.ServerHandshake(here); err == nil {
			t.Error("a stranger was let in")
		}
	}
	reads := func() int {
		w.knows.mu.Lock()
		defer w.knows.mu.Unlock()
		return w.knows.reads
	}
	for range 5 {
		connect()
	}
	if n := reads(); n != 1 {
		t.Errorf("read %d times", n)
	}
	for _, change := range [][]keyserver.Change{
		{{Kind: keyserver.ChangeTrustedCA, Action: keyserver.Created}}, // does not require a check of open connections
		{{Kind: keyserver.ChangeRole, Action: keyserver.Deleted}},
	} {
		w.gate.Changed(change)
		connect()
	}
	if n := reads(); n != 2 {
		t.Errorf("read %d times after a change", n)
	}
}

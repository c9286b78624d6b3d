package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// flooded is the limit of handshakes while one IPv6 site begins very many of them.
type flooded struct{ *handshakes }

// Two networks of one IPv6 site (48 bits), and one network of another site.
const flood, sameSite, otherSite = "2001:db8:0:1::/64", "2001:db8:0:2::/64", "2001:db8:1::/64"

// newFlooded begins a handshake every millisecond for five seconds. Each millisecond a request in a session arrives on a
// connection of the given age.
func newFlooded(age, lag time.Duration) flooded {
	h := flooded{newHandshakes(time.Now, func() time.Duration { return lag }, prometheus.NewRegistry())}
	honest := h.connect(otherSite, 0)
	for range 500 {
		h.connect(flood, 0) // silent connections
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		honest.accepted = time.Now().Add(-age)
		h.protect(honest)
		conn := h.connect(flood, 0)
		go func() { _ = h.begin(conn) }()
	}
	return h
}

func (h flooded) connect(network string, port uint16) *heldConn {
	return newHeldConn(nil, holder{netip.MustParsePrefix(network), port}, h.handshakes)
}

func (h flooded) begin(conn net.Conn) error {
	_, err := h.await(&tls.ClientHelloInfo{Conn: conn})
	return err
}

// TestHandshakesWait checks that handshakes of an IPv6 site are delayed if it begins many of them while the cores are
// busy and an established connection has requests in a session. Silent connections, young connections and other sites
// change nothing.
func TestHandshakesWait(t *testing.T) {
	for name, c := range map[string]struct {
		age     time.Duration // of the connection with the session
		lag     time.Duration
		from    string
		port    uint16
		delayed bool
	}{
		"the flood":                     {2 * established, time.Second, flood, 0, true},
		"another network of its site":   {2 * established, time.Second, sameSite, 0, true},
		"another site":                  {2 * established, time.Second, otherSite, 0, false},
		"a connection of a proxy":       {2 * established, time.Second, flood, 1, false},
		"a session on a new connection": {established, time.Second, flood, 0, false},
		"cores that are not busy":       {2 * established, 0, flood, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFlooded(c.age, c.lag)
				conn, before, begun := h.connect(c.from, c.port), testutil.ToFloat64(h.delayed), time.Now()
				err := h.begin(conn)
				took, counted := time.Since(begun), testutil.ToFloat64(h.delayed)-before
				if err != nil || (took == longestHandshakeDelay) != c.delayed || !c.delayed && took > 20*time.Millisecond || counted > 1 || c.delayed && counted != 1 {
					t.Errorf("a handshake is delayed by %s, and %v are counted: %v", took, counted, err)
				}
				time.Sleep(longestHandshakeDelay)
			})
		})
	}
}

// pipes is a listener of connections from one address.
type pipes struct{ net.Listener }

type pipe struct{ net.Conn }

func (pipes) Accept() (net.Conn, error) { end, _ := net.Pipe(); return pipe{end}, nil }

func (pipe) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: netip.MustParsePrefix(flood).Addr().AsSlice()}
}

// TestClosedHandshakesEnd checks that a handshake that waits fails when the server closes its connection.
func TestClosedHandshakesEnd(t *testing.T) {
	for name, end := range map[string]func(b *boundedListener, conn net.Conn) error{
		"closed":  func(_ *boundedListener, conn net.Conn) error { return conn.Close() },
		"evicted": func(b *boundedListener, _ net.Conn) error { _, err := b.Accept(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFlooded(2*established, time.Second)
				b := &boundedListener{
					Listener: pipes{}, held: quota.NewCrowd(1, 1, holder.site), handshakes: h.handshakes,
					closed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "closed"}, []string{"bound"}),
				}
				conn, err := b.Accept()
				if err != nil {
					t.Fatal(err)
				}
				result, begun := make(chan error), time.Now()
				go func() { result <- h.begin(conn) }()
				synctest.Wait()
				if err := end(b, conn); err != nil {
					t.Error(err)
				}
				if err := <-result; !errors.Is(err, net.ErrClosed) || time.Since(begun) > 0 {
					t.Errorf("the handshake ends with %v after %s", err, time.Since(begun))
				}
				time.Sleep(longestHandshakeDelay)
			})
		})
	}
}

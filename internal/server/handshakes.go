package server

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

const (
	// handshakesPerCore is the lowest limit of TLS handshakes of one site (an IPv4 address or an IPv6 network of 48 bits)
	// per second and core, from two cores on. A handshake without a client certificate uses as much of a core as about 24
	// requests.
	handshakesPerCore = 25
	// longestHandshakeDelay is shorter than the timeout of a kubelet's probe, which may come from the same address.
	longestHandshakeDelay = 3 * time.Second
	// established is the age at which a connection with requests in a session becomes protected from handshakes of
	// others. So a client that opens a new connection for each request, and has no other connection, does not delay its
	// own handshakes.
	established = time.Second
)

// handshakes delays TLS handshakes of a site (an IPv4 address or an IPv6 network of 48 bits) that begins many of them
// while the cores are busy and requests in sessions arrive on established connections. After the delay, the handshake
// continues.
type handshakes struct {
	clock   func() time.Time
	pace    *quota.Pace[holder]
	delayed prometheus.Counter
}

func newHandshakes(clock func() time.Time, lag func() time.Duration, registry prometheus.Registerer) *handshakes {
	h := &handshakes{
		clock: clock,
		pace:  quota.NewPace[holder](clock, lag, handshakesPerCore),
		delayed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keyserver_handshakes_delayed_total",
			Help: "TLS handshakes of the API that were delayed, because the cores were busy and their network had reached the limit of handshakes per second.",
		}),
	}
	registry.MustRegister(h.delayed)
	return h
}

// protect delays handshakes of others for a short time, because a request in a session has arrived.
func (h *handshakes) protect(c *heldConn) {
	if h.clock().Sub(c.accepted) > established {
		h.pace.Crowd()
	}
}

// await returns when a handshake may continue. It fails if the server closes the connection first. At this point the
// server has read the ClientHello and has computed nothing yet, so a silent connection does not count. await implements
// tls.Config.GetConfigForClient.
func (h *handshakes) await(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c, ok := hello.Conn.(*heldConn)
	if !ok {
		return nil, nil
	}
	d := h.pace.Delay(c.from.site(), longestHandshakeDelay)
	if d <= 0 {
		return nil, nil
	}
	h.delayed.Inc()
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil, nil
	case <-c.ended:
		return nil, net.ErrClosed
	}
}

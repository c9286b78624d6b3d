package server

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

const (
	// handshakesPerCore is the lowest limit of TLS handshakes of one site (an IPv4 address or an IPv6 network of 48
	// bits) per second and core. It applies to machines with two or more cores. A handshake without a client
	// certificate uses as much of a core as about 24 requests.
	handshakesPerCore = 25
	// longestHandshakeDelay is shorter than the timeout of a kubelet's probe, because the probe may come from the same
	// address.
	longestHandshakeDelay = 3 * time.Second
	// established is the age from which a connection with requests in a session counts as established. Handshakes are
	// delayed only to protect established connections. So a client that uses only new connections does not delay its
	// own handshakes.
	established = time.Second
)

// handshakes delays TLS handshakes of a site (an IPv4 address or an IPv6 network of 48 bits). It does so if the site
// begins many handshakes while the cores are busy and requests in sessions arrive on established connections. After the
// delay, the handshake continues.
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

// protect makes the limit of handshakes hold for a short time, because a request in a session has arrived. It does
// nothing if the connection is new.
func (h *handshakes) protect(c *heldConn) {
	if h.clock().Sub(c.accepted) > established {
		h.pace.Crowd()
	}
}

// await returns when a handshake may continue. It fails if the server closes the connection first. await implements
// tls.Config.GetConfigForClient: the server has read the ClientHello and has computed nothing yet. So a connection that
// sends no ClientHello does not count.
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

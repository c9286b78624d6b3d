package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/internal/server/listener"
)

// Reasons for closing a connection: the values of the metric's label.
const (
	closedAll     = "all"     // the process has reached --max-connections
	closedAddress = "address" // an address has reached --max-connections-per-address
	closedIdle    = "idle"    // a new connection replaced a connection that had no request in a session
	closedResets  = "resets"  // the client made the server reset too many streams
)

// ownFiles is the number of files that a process needs in addition to the API connections: for its database, its
// listeners and its own connections. Connections to PostgreSQL are not included.
const ownFiles = 96

// fitFiles lowers the limits of connections, so that all connections fit into the limit of open files.
func (c *Config) fitFiles() {
	others := ownFiles
	if c.DatabaseURL != "" {
		others += c.DatabaseMaxConnections
	}
	wanted := c.MaxConnections
	if c.ExternalListen != "" { // this listener may have as many connections as the API
		wanted *= 2
	}
	fits := listener.Fit(c.Logger, "--max-connections", wanted, others)
	if fits == wanted {
		return
	}
	c.MaxConnections = max(fits*c.MaxConnections/wanted, 1)
	c.MaxConnectionsPerAddress = min(c.MaxConnectionsPerAddress, quota.Share(c.MaxConnections))
}

// fitStrangers lowers the limits of requests without a session to a share of the connections.
func (c *Config) fitStrangers() {
	c.MaxStrangers = min(c.MaxStrangers, quota.Share(c.MaxConnections))
	c.MaxStrangersPerAddress = min(c.MaxStrangersPerAddress, c.MaxStrangers)
}

// boundedListener limits the connections of the API: in total and per address. At the limit in total, a new connection
// replaces a connection without a request in a session: the oldest such connection of the address with the most
// connections (see quota.Crowd). If there is none, or at the limit of an address, the listener closes the new
// connection immediately.
type boundedListener struct {
	net.Listener
	held       *quota.Crowd[holder]
	proxies    clientaddr.Proxies
	closed     *prometheus.CounterVec
	handshakes *handshakes
}

func (s *Server) bound(l net.Listener) *boundedListener {
	b := &boundedListener{
		Listener: l, proxies: s.cfg.proxies,
		held: quota.NewCrowd(s.cfg.MaxConnections, s.cfg.MaxConnectionsPerAddress, holder.site),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_connections_closed_total",
			Help: "Connections to the API that were closed: they had no request in a session while too many were open, in total or from one address, or their clients caused too many resets of streams.",
		}, []string{"bound"}),
		handshakes: newHandshakes(s.cfg.Clock, quota.Lag(), s.registry),
	}
	s.registry.MustRegister(append(b.held.Collectors("connections"), b.closed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "keyserver_connections", Help: "Connections to the API that are open.",
	}, func() float64 { return float64(b.held.Held()) }))...)
	return b
}

// Accept implements net.Listener.
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := newHeldConn(conn, b.holder(conn), b.handshakes)
		member, verdict := b.held.Join(c.from, func() {
			b.closed.WithLabelValues(closedIdle).Inc()
			c.end()
			_ = conn.Close()
		})
		switch verdict {
		case quota.Taken:
			c.member, c.expose = member, member.Expose
			return c, nil
		case quota.FullAll:
			b.closed.WithLabelValues(closedAll).Inc()
		case quota.FullEach:
			b.closed.WithLabelValues(closedAddress).Inc()
		}
		_ = conn.Close() // the client sees the closed connection
	}
}

// holder is the network that a connection counts for. For a trusted proxy, it also contains the port, because all
// clients of the proxy share the proxy's address.
type holder struct {
	network netip.Prefix
	port    uint16
}

func (b *boundedListener) holder(conn net.Conn) holder {
	at := clientaddr.OfConn(conn.RemoteAddr())
	h := holder{network: clientaddr.Network(at)}
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok && b.proxies.Trusts(at) {
		h.port = tcp.AddrPort().Port()
	}
	return h
}

// site returns the group of the holder: its IPv6 network of 48 bits. Each connection of a proxy is a separate
// group.
func (h holder) site() holder {
	if h.port == 0 {
		h.network = clientaddr.Site(h.network)
	}
	return h
}

// heldConn is a connection that uses a place until it is closed.
type heldConn struct {
	net.Conn
	from       holder
	handshakes *handshakes
	member     *quota.Member[holder]
	expose     func()        // member.Expose, for protect
	ended      chan struct{} // closed by end
	end        func()        // ends the delay of the handshake
	delay      atomic.Int64  // delay of the next read, in nanoseconds
	accepted   time.Time
}

func newHeldConn(conn net.Conn, from holder, h *handshakes) *heldConn {
	c := &heldConn{Conn: conn, from: from, handshakes: h, ended: make(chan struct{}), accepted: h.clock()}
	c.end = sync.OnceFunc(func() { close(c.ended) })
	return c
}

// Read implements net.Conn.
func (c *heldConn) Read(p []byte) (int, error) {
	if c.delay.Load() > 0 {
		time.Sleep(time.Duration(c.delay.Swap(0)))
	}
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *heldConn) Close() error {
	c.end()
	c.member.Leave()
	return c.Conn.Close()
}

type heldKey struct{}

// withHeld adds the connection to the context of its requests. It is used as http.Server.ConnContext.
func withHeld(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, heldKey{}, conn)
}

// protect implements httpapi.Config.Protect. A request without a session does not protect its connection, because a
// client can keep such a request open without a time limit.
func protect(ctx context.Context) (release func()) {
	c, ok := ctx.Value(heldKey{}).(*heldConn)
	if !ok {
		return func() {}
	}
	c.handshakes.protect(c)
	c.member.Keep()
	return c.expose
}

// delay implements httpapi.Config.Delay.
func delay(ctx context.Context, d time.Duration) {
	if c, ok := ctx.Value(heldKey{}).(*heldConn); ok {
		c.delay.Store(max(int64(d), c.delay.Load()))
	}
}

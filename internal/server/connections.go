package server

import (
	"net"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/listener"
	"github.com/keyserver-operator/keyserver-operator/internal/origin"
	"github.com/keyserver-operator/keyserver-operator/internal/quota"
)

// Why a connection is closed as soon as it is made; the metric's label.
const (
	closedAll     = "all"     // the process has as many as it may (--max-connections)
	closedAddress = "address" // one address has (--max-connections-per-address)
)

const (
	// ownFiles are the files that a process needs beside connections: of its database, its
	// listeners, and its own connections to others, but for PostgreSQL's.
	ownFiles = 96
	// quarter is the part of all connections that one address may have at most.
	quarter = 4
)

// fitFiles lowers the limits of connections to the files that the process may open.
func (c *Config) fitFiles() {
	others := ownFiles
	if c.DatabaseURL != "" {
		others += c.DatabaseMaxConnections
	}
	wanted := c.MaxConnections
	if c.ExternalListen != "" { // which has as many places again
		wanted *= 2
	}
	fits := listener.Fit(c.Logger, "--max-connections", wanted, others)
	if fits == wanted {
		return
	}
	c.MaxConnections = max(fits*c.MaxConnections/wanted, 1)
	c.MaxConnectionsPerAddress = min(c.MaxConnectionsPerAddress, max(c.MaxConnections/quarter, 1))
}

// boundedListener closes the connections that are too many. Nobody waits in the
// system's queue for a stranger to leave.
type boundedListener struct {
	net.Listener
	held    *quota.Quota[holder]
	proxies origin.Proxies
	closed  *prometheus.CounterVec
}

func (s *Server) bound(l net.Listener, registry prometheus.Registerer) net.Listener {
	b := &boundedListener{
		Listener: l, proxies: s.cfg.proxies,
		held: quota.New[holder](int64(s.cfg.MaxConnections), int64(s.cfg.MaxConnectionsPerAddress)),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_connections_closed_total",
			Help: "Connections to the API that were closed as they came, because too many were open in all or from one address.",
		}, []string{"bound"}),
	}
	registry.MustRegister(b.closed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "keyserver_connections", Help: "Connections to the API that are open.",
	}, func() float64 { return float64(b.held.Held()) }))
	return b
}

// Accept implements net.Listener.
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := b.holder(conn)
		switch b.held.Take(from, 1) {
		case quota.Taken:
			return &heldConn{Conn: conn, leave: sync.OnceFunc(func() { b.held.Return(from, 1) })}, nil
		case quota.FullAll:
			b.closed.WithLabelValues(closedAll).Inc()
		case quota.FullEach:
			b.closed.WithLabelValues(closedAddress).Inc()
		}
		_ = conn.Close() // he learns that much
	}
}

// holder is whom a connection counts for: its network, and by which port where
// that is a proxy's, because everybody comes through it.
type holder struct {
	network netip.Prefix
	port    uint16
}

func (b *boundedListener) holder(conn net.Conn) holder {
	at := origin.OfConn(conn.RemoteAddr())
	h := holder{network: origin.Network(at)}
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok && b.proxies.Trusts(at) {
		h.port = tcp.AddrPort().Port()
	}
	return h
}

// heldConn gives its place back when it is closed.
type heldConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *heldConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

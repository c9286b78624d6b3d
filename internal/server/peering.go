package server

import (
	"net"
	"net/netip"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/trust"
)

// self describes the key server to its peers: names, certificate and addresses.
func (s *Server) self() trust.Self {
	self := trust.Self{
		ServerName: s.cfg.ServerName, Certificate: s.leaf.issued.Present,
		Resolver: net.DefaultResolver,
	}
	at := listensAt(s.listeners.external)
	self.Port, self.Everywhere = at.Port(), at.IsValid() && at.Addr().IsUnspecified()
	self.Addresses = func() ([]netip.Addr, error) { return ownAddresses(at.Addr()) }
	return self
}

// listensAt is the address of a listener, with the port that the flag may have left
// open; none where there is no listener.
func listensAt(l net.Listener) netip.AddrPort {
	if l == nil {
		return netip.AddrPort{}
	}
	at, _ := netip.ParseAddrPort(l.Addr().String()) // which a listener of TCP has
	return at
}

// ownAddresses are the addresses of all interfaces, as each of them is
// configured, and where the listener for peers is. The rest of a network does not
// belong to the machine, not even of 127.0.0.0/8: two key servers on one machine
// can tell each other apart.
func ownAddresses(listener netip.Addr) ([]netip.Addr, error) {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	if listener.IsValid() && !listener.IsUnspecified() {
		own = append(own, listener)
	}
	for _, n := range networks {
		if prefix, err := netip.ParsePrefix(n.String()); err == nil {
			own = append(own, prefix.Addr())
		}
	}
	return own, nil
}

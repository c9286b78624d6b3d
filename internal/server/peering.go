package server

import (
	"net"
	"net/netip"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/trust"
)

// self returns the description of the key server for its peers: names, certificate and addresses.
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

// listensAt returns the address of a listener. If the flag has port 0, it returns the port that the system has chosen.
// It returns the zero AddrPort if l is nil.
func listensAt(l net.Listener) netip.AddrPort {
	if l == nil {
		return netip.AddrPort{}
	}
	at, _ := netip.ParseAddrPort(l.Addr().String()) // a TCP listener always has a valid address
	return at
}

// ownAddresses returns the addresses of all network interfaces and of the listener for peers. It does not include the
// other addresses of their networks, not even those of 127.0.0.0/8. So two key servers on one machine can be
// distinguished by their addresses.
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

package server

import (
	"net"
	"net/netip"

	"github.com/keyserver-operator/keyserver-operator/internal/engine"
)

// self is what the key server knows of itself as a peer of others. external is
// nil where there is no listener for peers.
func (s *Server) self(leaf leaves, external net.Listener) engine.Self {
	self := engine.Self{
		ServerName: s.cfg.ServerName, Certificate: leaf.present,
		Resolver: net.DefaultResolver, Addresses: ownAddresses,
	}
	if external != nil {
		self.Port = listenerPort(external)
	}
	return self
}

// listenerPort is the port that was bound, which the flag may have left open.
func listenerPort(l net.Listener) uint16 {
	if at, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
		return at.Port()
	}
	return 0
}

// ownAddresses are the addresses of all interfaces, as each of them is
// configured. The rest of a network does not belong to the machine, not even
// of 127.0.0.0/8: two key servers on one machine can tell each other apart.
func ownAddresses() ([]netip.Addr, error) {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, n := range networks {
		if prefix, err := netip.ParsePrefix(n.String()); err == nil {
			own = append(own, prefix.Addr())
		}
	}
	return own, nil
}

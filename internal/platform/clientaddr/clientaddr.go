// Package clientaddr says where a connection or a request comes from, as far as
// strangers are counted by it and the audit trail names it.
package clientaddr

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// ipv6Bits is the network that one machine has of IPv6: it can send from each
// of its addresses, so that counting those would count nothing.
const ipv6Bits = 64

// Network is whose connections are counted together.
func Network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := ipv6Bits
	if a.Is4() {
		bits = a.BitLen()
	}
	p, _ := a.Prefix(bits) // the zero address has the zero network
	return p
}

// siteBits is the length of the IPv6 prefix that a site usually has (RFC 6177). It contains 65,536
// networks of 64 bits.
const siteBits = 48

// Site returns the prefix of the site that an IPv6 network belongs to, and an IPv4 network as it is.
func Site(network netip.Prefix) netip.Prefix {
	if !network.Addr().Is6() || network.Bits() < siteBits {
		return network
	}
	return netip.PrefixFrom(network.Addr(), siteBits).Masked()
}

// OfConn is the address at the other end of a connection, the zero one where it
// has none.
func OfConn(at net.Addr) netip.Addr {
	if tcp, ok := at.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// OfRequest is the address in http.Request.RemoteAddr.
func OfRequest(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

// Proxies are those whose word on where a request comes from is taken.
type Proxies []netip.Prefix

// ParseProxies reads networks in CIDR notation (RFC 4632, RFC 4291 section
// 2.3) and single addresses.
func ParseProxies(list []string) (Proxies, error) {
	var out Proxies
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, err := netip.ParseAddr(s)
			if err != nil || a.Zone() != "" {
				return nil, fmt.Errorf("%q is neither a network such as 10.0.0.0/8 nor an address", s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		if p != p.Masked() {
			return nil, fmt.Errorf("%q has bits beyond its mask; %s is the network", s, p.Masked())
		}
		if p.Bits() == 0 {
			return nil, fmt.Errorf("%q is everybody; whoever sends a header could then be anybody", s)
		}
		out = append(out, p)
	}
	return out, nil
}

// Trusts says whether the address is a proxy's.
func (p Proxies) Trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a.Unmap().WithZone("")) })
}

// maxHops is how many entries of X-Forwarded-For are looked at.
const maxHops = 16

// Client is where a request comes from: its connection's other end, and where
// that is a proxy, whom the proxy names. X-Forwarded-For is read from its end,
// which the nearest proxy has written, past those that are proxies themselves;
// what is left of that anybody may have sent. Where an entry says nothing that
// is an address, the proxy that passed it on is as far as one can see.
func (p Proxies) Client(remote netip.Addr, forwardedFor []string) netip.Addr {
	at := remote.Unmap()
	hops := 0
	for _, value := range slices.Backward(forwardedFor) {
		for hops < maxHops && p.Trusts(at) {
			rest, last, more := cutLast(value)
			next, ok := parseHop(last)
			if !ok {
				return at
			}
			at, value = next, rest
			hops++
			if !more {
				break
			}
		}
	}
	return at
}

// cutLast splits a list at its last comma.
func cutLast(list string) (rest, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// parseHop reads an address, with or without a port.
func parseHop(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return a.Unmap().WithZone(""), true
	}
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr().Unmap().WithZone(""), true
	}
	return netip.Addr{}, false
}

// Package clientaddr determines the client address of connections and requests. The address is used in the audit log,
// and for limits of requests without a session.
package clientaddr

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// ipv6Bits is the prefix length of the IPv6 network of one machine. The machine can use every address of this network,
// so connections are counted for the network.
const ipv6Bits = 64

// Network returns the network of an address. Limits of connections count the connections of a network together.
func Network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := ipv6Bits
	if a.Is4() {
		bits = a.BitLen()
	}
	p, _ := a.Prefix(bits) // the zero address has the zero network
	return p
}

// siteBits is the length of the IPv6 prefix that a site, such as a company, usually gets (RFC 6177). Such a prefix
// contains 65,536 networks of 64 bits.
const siteBits = 48

// Site returns the site prefix of an IPv6 network. It returns an IPv4 network unchanged.
func Site(network netip.Prefix) netip.Prefix {
	if !network.Addr().Is6() || network.Bits() < siteBits {
		return network
	}
	return netip.PrefixFrom(network.Addr(), siteBits).Masked()
}

// OfConn returns the remote address of a connection, or the zero address if it has none.
func OfConn(at net.Addr) netip.Addr {
	if tcp, ok := at.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// OfRequest parses http.Request.RemoteAddr. It returns the zero address for an invalid text.
func OfRequest(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

// Proxies contains the networks whose X-Forwarded-For headers are trusted.
type Proxies []netip.Prefix

// ParseProxies parses networks in CIDR notation (RFC 4632, RFC 4291 section 2.3) and single
// addresses.
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
			return nil, fmt.Errorf("%q has bits beyond its mask; use %s", s, p.Masked())
		}
		if p.Bits() == 0 {
			return nil, fmt.Errorf("%q covers all addresses, so any client could forge the header; name the proxies", s)
		}
		out = append(out, p)
	}
	return out, nil
}

// Trusts reports whether the address belongs to a proxy.
func (p Proxies) Trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a.Unmap().WithZone("")) })
}

const maxHops = 16

// Client returns the client address of a request. It is the remote address of the connection or, if that is a proxy,
// the address in X-Forwarded-For. The nearest proxy writes the end of this header, so Client reads the entries from the
// end. It skips the addresses of trusted proxies and returns the first other address. Earlier entries are not trusted.
// If an entry is not an address, Client returns the proxy that has written this entry.
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

func cutLast(list string) (rest, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

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

package dpop

import (
	"crypto/x509"
	"net"
	"strings"
)

// Origin is the scheme, host and port of a URL. The scheme is in lower case, the host has no brackets, and the port is
// always set, even if it is the default port.
type Origin struct{ Scheme, Host, Port string }

// Site reports whether clients reach the key server at an origin.
type Site func(Origin) bool

// At returns a Site with only the origin of one URL. If the URL is invalid, the Site contains no origin.
func At(url string) Site {
	own, _, ok := normalise(url)
	return func(o Origin) bool { return ok && o == own }
}

// ByCertificate returns the Site of a TLS listener: its port, with each name for which its current certificate is
// valid.
//
// If a client verifies the certificate, it cannot reach another host under these names. The Host header is not used,
// because a proxy could change it.
func ByCertificate(port string, leaf func() *x509.Certificate) Site {
	return func(o Origin) bool {
		return o.Scheme == "https" && o.Port == port && leaf().VerifyHostname(o.Host) == nil
	}
}

// OnLoopback returns the Site of a listener without TLS. Only local processes can reach it.
func OnLoopback(port string) Site {
	return func(o Origin) bool { return o.Scheme == "http" && o.Port == port && isLoopback(o.Host) }
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

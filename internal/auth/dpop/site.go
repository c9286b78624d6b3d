package dpop

import (
	"crypto/x509"
	"net"
	"strings"
)

// Origin is the scheme, host and port of a URL: the scheme in lower case, the host
// without brackets, the port always set, also if it is the default port.
type Origin struct{ Scheme, Host, Port string }

// Site reports whether clients reach the service at an origin.
type Site func(Origin) bool

// At returns the site of one URL; it ignores the path. For an invalid URL, the site
// matches no origin.
func At(url string) Site {
	own, _, ok := normalise(url)
	return func(o Origin) bool { return ok && o == own }
}

// ByCertificate returns the site of a TLS listener: its port, and each name that the
// certificate which it shows at that moment is valid for.
//
// A client that verifies the certificate has reached no other host under these names. A
// proxy could change the Host header, so the header is not used.
func ByCertificate(port string, leaf func() *x509.Certificate) Site {
	return func(o Origin) bool {
		return o.Scheme == "https" && o.Port == port && leaf().VerifyHostname(o.Host) == nil
	}
}

// OnLoopback returns the site of a listener without TLS, which only local processes can
// reach.
func OnLoopback(port string) Site {
	return func(o Origin) bool { return o.Scheme == "http" && o.Port == port && isLoopback(o.Host) }
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

package dpop

import (
	"crypto/x509"
	"net"
	"strings"
)

// Origin is scheme, host and port of a URL: the scheme in small letters, the host
// without brackets, the port there even where the URL leaves it out.
type Origin struct{ Scheme, Host, Port string }

// Site reports whether clients reach the service by an origin.
type Site func(Origin) bool

// At is the site of one URL, whose path is passed over. What is no URL of a
// service is reached by nobody.
func At(url string) Site {
	own, _, ok := normalise(url)
	return func(o Origin) bool { return ok && o == own }
}

// ByCertificate is the site of a TLS listener: the port that it has, and each name
// for which a client takes the certificate that it shows at that moment.
//
// A client that verifies the certificate has reached no other host by these
// names. The Host header would be whatever a relay makes of it.
func ByCertificate(port string, leaf func() *x509.Certificate) Site {
	return func(o Origin) bool {
		return o.Scheme == "https" && o.Port == port && leaf().VerifyHostname(o.Host) == nil
	}
}

// OnLoopback is the site of a listener without TLS, which only the machine itself
// reaches.
func OnLoopback(port string) Site {
	return func(o Origin) bool { return o.Scheme == "http" && o.Port == port && isLoopback(o.Host) }
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

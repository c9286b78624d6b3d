package dpop

import (
	"net/url"
	"strings"
)

// reached compares a claimed target with where the service is reached, and the
// path that is asked for, as RFC 9449 section 4.3 asks: normalised, and without
// regard to query and fragment.
func reached(claimed string, site Site, path string) bool {
	origin, claimedPath, ok := normalise(claimed)
	return ok && claimedPath == plainEscapes(path) && site(origin)
}

// defaultPorts are the ports that a URL need not name, by its scheme.
var defaultPorts = map[string]string{"https": "443", "http": "80"}

// normalise applies what RFC 3986 sections 6.2.2 and 6.2.3 allow without
// knowing the server: case of scheme and host, the default port, an empty
// path, and needless escapes. The dot that ends a name says that it is whole,
// and names the same host. Dots in paths stay: the API knows no such path.
func normalise(text string) (Origin, string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Opaque != "" {
		return Origin{}, "", false
	}
	o := Origin{Scheme: strings.ToLower(u.Scheme), Host: strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), Port: u.Port()}
	standard := defaultPorts[o.Scheme]
	// A star is a pattern of a certificate and no host.
	if o.Host == "" || standard == "" || strings.HasSuffix(o.Host, ".") || strings.Contains(o.Host, "*") {
		return Origin{}, "", false
	}
	if o.Port == "" {
		o.Port = standard
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return o, plainEscapes(path), true
}

// plainEscapes spells escapes in capitals, and unreserved characters without.
func plainEscapes(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+2 >= len(path) {
			b.WriteByte(path[i])
			continue
		}
		if c := unhex(path[i+1])<<4 | unhex(path[i+2]); unreserved(c) {
			b.WriteByte(c)
		} else {
			b.WriteString(strings.ToUpper(path[i : i+3]))
		}
		i += 2
	}
	return b.String()
}

// unhex needs no error: what is parsed as a URL has only good escapes.
func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	default:
		return c - '0'
	}
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

package dpop

import (
	"net/url"
	"strings"
)

// reached compares the htu claim with the origins of the key server and the requested path. As RFC 9449 section 4.3
// requires, it normalizes both URLs and ignores query and fragment.
func reached(claimed string, site Site, path string) bool {
	origin, claimedPath, ok := normalise(claimed)
	return ok && claimedPath == plainEscapes(path) && site(origin)
}

var defaultPorts = map[string]string{"https": "443", "http": "80"}

// normalise returns origin and path of a URL after the normalization of RFC 3986 sections 6.2.2 and 6.2.3: case of
// scheme and host, default port, empty path, and unnecessary escapes. It removes the final dot of a fully qualified
// name. It does not remove dot segments, because no API path has them.
func normalise(text string) (Origin, string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Opaque != "" {
		return Origin{}, "", false
	}
	o := Origin{Scheme: strings.ToLower(u.Scheme), Host: strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), Port: u.Port()}
	standard := defaultPorts[o.Scheme]
	// A host must not contain a star, which is a wildcard in the names of a certificate.
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

// plainEscapes writes escapes in upper case, and decodes escapes of unreserved characters.
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

// unhex returns the value of a hexadecimal digit. url.Parse has already rejected invalid escapes.
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

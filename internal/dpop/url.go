package dpop

import (
	"net/url"
	"strings"
)

// sameResource compares a claimed target with the real one as RFC 9449 section
// 4.3 asks: normalised, and without regard to query and fragment.
func sameResource(claimed, real string) bool {
	a, okA := normalise(claimed)
	b, okB := normalise(real)
	return okA && okB && a == b
}

// normalise applies what RFC 3986 sections 6.2.2 and 6.2.3 allow without
// knowing the server: case of scheme and host, the default port, an empty
// path, and needless escapes. Dots in paths stay: the API knows no such path.
func normalise(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Opaque != "" {
		return "", false
	}
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	default:
		return "", false
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return scheme + "://" + strings.TrimSuffix(host, ":") + plainEscapes(path), true
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

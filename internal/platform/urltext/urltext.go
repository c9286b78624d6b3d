// Package urltext formats URLs for logs, metrics and errors. Only the scheme and the host of a URL are public. The
// user, the path and the query may contain a secret; for example, the path of a webhook may be secret.
package urltext

import (
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
)

// Origin returns the scheme and the host of a URL, and "" if the text has no host.
func Origin(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme == keyScheme {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

var (
	anyURL    = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>\x60]*`)
	authority = regexp.MustCompile(`^(?:\[[0-9A-Fa-f:.%]*\]|[A-Za-z0-9._~%-]*)(?::[0-9]*)?`)
)

// Redact replaces each URL in a text by its scheme and host.
func Redact(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	return anyURL.ReplaceAllStringFunc(text, redact)
}

// keyScheme is the scheme of URLs that contain a key instead of a host.
const keyScheme = "base64key"

func redact(found string) string {
	bare := strings.TrimRight(found, ".,:;!?)]}")
	tail := found[len(bare):]
	scheme, rest, _ := strings.Cut(bare, "://")
	if strings.EqualFold(scheme, "unix") {
		return found // The path of a socket is not secret, and there is no host.
	}
	if strings.EqualFold(scheme, keyScheme) {
		return scheme + "://" + tail
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if strings.ContainsAny(rest[:at], "/?#") {
			rest = "" // A password may contain a slash, so the beginning of the host is unknown.
		} else {
			rest = rest[at+1:]
		}
	}
	if strings.HasPrefix(rest, "[") && !strings.Contains(rest, "]") && strings.HasPrefix(tail, "]") {
		rest, tail = rest+"]", tail[1:]
	}
	return scheme + "://" + authority.FindString(rest) + tail
}

// Attr is a slog.HandlerOptions.ReplaceAttr function. It redacts URLs in every text and error.
func Attr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Redact(v.String()))
	case slog.KindAny:
		switch is := v.Any().(type) {
		case error:
			a.Value = slog.StringValue(Redact(is.Error()))
		case fmt.Stringer:
			a.Value = slog.StringValue(Redact(is.String()))
		case []string:
			list := make([]string, len(is))
			for i, text := range is {
				list[i] = Redact(text)
			}
			a.Value = slog.AnyValue(list)
		}
	default:
	}
	return a
}

// Error returns an error whose text has redacted URLs. errors.Is and errors.As find the same errors in it as in err.
// For nil it returns nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return redacted{err}
}

type redacted struct{ error }

func (r redacted) Error() string { return Redact(r.error.Error()) }

func (r redacted) Unwrap() error { return r.error }

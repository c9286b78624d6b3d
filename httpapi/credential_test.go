package httpapi

import (
	"strings"
	"testing"
)

// FuzzCredential checks that an Authorization header has one scheme and one session id,
// or is refused without looking up a session.
func FuzzCredential(f *testing.F) {
	for _, seed := range []string{"Bearer abc", "DPoP abc", "dpop abc", "Basic abc", "Bearer", "Bearer ", "Bearer  abc", "Bearer abc def", "abc", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		token, bound, err := credential([]string{value})
		if err != nil {
			if token != "" {
				t.Errorf("%q is refused and still names %q", value, token)
			}
			return
		}
		scheme, rest, _ := strings.Cut(value, " ")
		if strings.TrimLeft(rest, " ") != token || token == "" || len(token) > maxToken || bound != strings.EqualFold(scheme, "DPoP") {
			t.Errorf("%q is read as %q, bound %v", value, token, bound)
		}
		if _, _, err := credential([]string{value, value}); err == nil {
			t.Errorf("%q is taken twice", value)
		}
	})
}

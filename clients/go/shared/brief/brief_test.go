package brief

import (
	"testing"
	"unicode/utf8"
)

func TestClip(t *testing.T) {
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{{"short", 10, "short"}, {"abcdef", 5, "ab…"}, {"aéééé", 6, "aé…"}, {"ééé", 3, "…"}} {
		if got := Clip(tc.in, tc.n); got != tc.want || !utf8.ValidString(got) {
			t.Errorf("Clip(%q, %d) = %q, want %q", tc.in, tc.n, got, tc.want)
		}
	}
}

func TestList(t *testing.T) {
	for _, tc := range []struct {
		names []string
		want  string
	}{{nil, ""}, {[]string{"a", "b", "c"}, "a, b, c"}, {[]string{"a", "b", "c", "d", "e"}, "a, b, c and 2 more"}} {
		if got := List(tc.names); got != tc.want {
			t.Errorf("List(%q) = %q, want %q", tc.names, got, tc.want)
		}
	}
}

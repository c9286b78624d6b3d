package keyserver

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDirectoryPaths(t *testing.T) {
	cases := map[string]struct {
		reason    string
		path      string
		plain     bool
		ancestors []string
	}{
		"Root":     {"the shortest", "/", true, []string{"/"}},
		"Bare":     {"the slash is added", "/a", true, []string{"/a/", "/"}},
		"Slashed":  {"and not doubled", "/a/", true, []string{"/a/", "/"}},
		"Doubled":  {"but reduced to one", "/a//", true, []string{"/a/", "/"}},
		"Deep":     {"longest first", "/a/b", true, []string{"/a/b/", "/a/", "/"}},
		"Relative": {"a path need not start at the root", "a/b", true, []string{"a/b/", "a/"}},
		"Spaces":   {"nothing is trimmed but slashes", " a ", true, []string{" a /"}},
		"Dot":      {"a place has one name", "/a/./b", false, nil},
		"DotDot":   {"text must not climb", "/a/../b", false, nil},
		"LastDots": {"not at the end either", "/a/..", false, nil},
		"Hole":     {"an empty segment is a second name", "/a//b", false, nil},
		"Deepest":  {"64 segments are taken", strings.Repeat("/a", 64), true, nil},
		"TooDeep":  {"65 are not", strings.Repeat("/a", 65), false, nil},
		"Longest":  {"1024 bytes with the slash", strings.Repeat("a", 1023), true, nil},
		"TooLong":  {"and no more, in bytes", strings.Repeat("ä", 512), false, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := PlainPath(tc.path); got != tc.plain {
				t.Errorf("%s: plain %v", tc.reason, got)
			}
			if tc.ancestors != nil && !slices.Equal(Ancestors(tc.path), tc.ancestors) {
				t.Errorf("%s: got %q", tc.reason, Ancestors(tc.path))
			}
		})
	}
}

// DirectoryPath is idempotent, makes the path end in exactly one slash, and changes
// nothing else.
func TestDirectoryPathProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.StringMatching(`(/|//|[a-zä. ]){0,12}`).Draw(t, "path")
		got := DirectoryPath(path)
		if got != DirectoryPath(got) {
			t.Errorf("%q becomes %q and then %q", path, got, DirectoryPath(got))
		}
		body := strings.TrimSuffix(got, "/")
		if body == got || strings.HasSuffix(body, "/") || strings.TrimRight(path, "/") != body {
			t.Errorf("%q becomes %q", path, got)
		}
	})
}

// The ancestors of a plain path are exactly its prefixes that end in a slash. The first
// templated ancestor is the longest.
func TestAncestorsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.StringMatching(`/?[a-z]{1,3}(/[a-z]{1,3}){0,5}/?`).Draw(t, "path")
		if !PlainPath(path) {
			t.Fatalf("%q is not plain", path)
		}
		whole := DirectoryPath(path)
		var want []string
		for n := len(whole); n > 0; n-- {
			if whole[n-1] == '/' {
				want = append(want, whole[:n])
			}
		}
		if got := Ancestors(path); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	})
}

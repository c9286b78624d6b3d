package trustrows

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSubjectPattern compares matches with a regular expression. It also checks
// that the range of the SQL query contains every match.
func TestSubjectPattern(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune(`aA/=%_\.*?[ü`)), 0, 8, -1)
		pattern, subject := text.Draw(t, "pattern"), text.Draw(t, "subject")
		parts := strings.Split(pattern, anyText)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		want := regexp.MustCompile(`(?s)\A` + strings.Join(parts, `.*`) + `\z`).MatchString(subject)
		p := newSubjectPattern(pattern)
		if got := p.matches(subject); got != want {
			t.Fatalf("%q in %q: got %v", subject, pattern, got)
		}
		if want && (subject < p.prefix() || subject >= string(p.end())) {
			t.Fatalf("%q is outside the range of %q", subject, pattern)
		}
	})
}

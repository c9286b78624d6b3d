package brief

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const ellipsis = "…"

// Clip cuts a text to at most n bytes, between two characters. A shortened text ends with an ellipsis.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(0, n-len(ellipsis))
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + ellipsis
}

// List returns the first three names, and the number of the other names.
func List(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

package keyserver

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable reports whether every character of a text can be seen for what it is: none
// that controls a terminal, breaks the line, has no width, or turns the direction of what
// is beside it.
func Printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
}

package ctl

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// printable is one line that a terminal does not act upon.
func printable(s string) string { return keyserver.Shown(s) }

// alone is printable, and keeps tabs, upon which a terminal does nothing but go on: whoever
// prints one member passes it on, and a trust blob is of fields between tabs.
func alone(s string) string {
	fields := strings.Split(s, "\t")
	for i, f := range fields {
		fields[i] = printable(f)
	}
	return strings.Join(fields, "\t")
}

// readable writes a text of many lines as printable has it.
func readable(to io.Writer) io.WriteCloser {
	return transform.NewWriter(to, runes.Map(func(r rune) rune {
		if hidden(r) {
			return unicode.ReplacementChar
		}
		return r
	}))
}

// fold breaks a text into lines: between words, and what is no words is cut, because half
// of it on each line could not be copied; --field has the whole.
func fold(text string, width int) string { return lined(text, width, cut) }

// broken does so without losing anything: what is no words goes on wherever a line is full.
func broken(text string, width int) string { return lined(text, width, pieces) }

// lined breaks a text between words, and has long deal with what is longer than a line.
func lined(text string, width int, long func(string, int) string) string {
	lines := strings.Split(wrap(text, width), "\n")
	for i, l := range lines {
		lines[i] = long(l, width)
	}
	return strings.Join(lines, "\n")
}

func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}

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

// printable returns s as one line without characters that control a terminal.
func printable(s string) string { return keyserver.Sanitize(s) }

// printableWithTabs is like printable, but keeps tabs, which cannot control a terminal. Scripts use the printed fields,
// and a trust blob contains tabs.
func printableWithTabs(s string) string {
	fields := strings.Split(s, "\t")
	for i, f := range fields {
		fields[i] = printable(f)
	}
	return strings.Join(fields, "\t")
}

// readable returns a writer that replaces invisible characters, but keeps line breaks.
func readable(to io.Writer) io.WriteCloser {
	return transform.NewWriter(to, runes.Map(func(r rune) rune {
		if hidden(r) {
			return unicode.ReplacementChar
		}
		return r
	}))
}

// fold breaks a text into lines at spaces, and cuts words that are longer than a line. A broken word would be copied
// with a line break. --field prints the entire word.
func fold(text string, width int) string { return lined(text, width, cut) }

// broken breaks a text like fold, but breaks long words instead of cutting them.
func broken(text string, width int) string { return lined(text, width, pieces) }

// lined breaks a text at spaces, and calls long for words longer than a line.
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

package keyserver

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable reports whether every character of a text can be seen for what it is: none
// that controls a terminal, breaks the line, has no width or no ink, or turns the
// direction of what is beside it.
func Printable(text string) bool { return !strings.ContainsFunc(text, unprintable) }

// unprintable knows, besides what Unicode calls no graphic character, those that it has
// programs ignore (fillers, joiners, selectors), and the blank of braille.
func unprintable(r rune) bool {
	return !unicode.IsPrint(r) || r == utf8.RuneError || r == '\u2800' ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Readable is Printable for a text of several lines.
func Readable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return unprintable(r) && r != '\n' && r != '\r' && r != '\t' })
}

package keyserver

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable reports whether every character of a text is visible. Control characters,
// line breaks, invisible and zero-width characters, and characters that change the text
// direction are not.
func Printable(text string) bool { return !strings.ContainsFunc(text, unclear) }

// Readable is Printable for a text that may also contain tabs and line breaks.
func Readable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return unclear(r) && r != '\n' && r != '\r' && r != '\t' })
}

// unclear reports whether a character is Unprintable or replaces invalid UTF-8.
func unclear(r rune) bool { return r == utf8.RuneError || Unprintable(r) }

// Sanitize returns a foreign text with each Unprintable character replaced.
func Sanitize(text string) string {
	return strings.Map(func(r rune) rune {
		if Unprintable(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Unprintable reports whether a character is not graphic in Unicode, is default-ignorable
// (fillers, joiners), is a variation selector, or is the Braille blank.
func Unprintable(r rune) bool {
	return !unicode.IsPrint(r) || r == '\u2800' ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

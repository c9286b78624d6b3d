package keyserver

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable reports whether every character of a text can be seen for what it is: none
// that controls a terminal, breaks the line, has no width or no ink, or turns the
// direction of what is beside it.
func Printable(text string) bool { return !strings.ContainsFunc(text, unclear) }

// Readable is Printable for a text of several lines.
func Readable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return unclear(r) && r != '\n' && r != '\r' && r != '\t' })
}

// unclear is Unprintable, or stands for what was no character.
func unclear(r rune) bool { return r == utf8.RuneError || Unprintable(r) }

// Shown is a text of somebody else's in which whatever is Unprintable was replaced.
func Shown(text string) string {
	return strings.Map(func(r rune) rune {
		if Unprintable(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Unprintable is a character that Printable does not pass: whatever Unicode calls no
// graphic character, those that it has programs ignore (fillers, joiners, selectors), and
// the blank of braille.
func Unprintable(r rune) bool {
	return !unicode.IsPrint(r) || r == '\u2800' ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

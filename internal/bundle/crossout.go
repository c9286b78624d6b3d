package bundle

import (
	"bytes"
	"regexp"
	"sync"
	"unicode"
)

// word is the end of a name whose value is a secret; names of files go on behind it.
const word = `(?:password|passwd|passphrase|pwd|secret|token|credential|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|session[_-]?id|material|signature|pin)s?`

// name is such a name, as logs, settings and languages spell it, with its quotes.
const name = `\\?["'\x60]?[a-z0-9_.-]*` + word + `\\?["'\x60]?`

// header is one of HTTP by which somebody is let in.
const header = `(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:key|token|secret|auth)[a-z-]*)`

// secret is what must not leave, wherever it is found: what stands behind the first group, or
// all of it where there is none. too says which of what was found is meant; nil for all.
type secret struct {
	*regexp.Regexp
	too func(value []byte) bool
}

func of(expression string) secret { return secret{Regexp: regexp.MustCompile(expression)} }

// secrets would rather cross out too much: whoever helps asks for what he misses. Every
// command has this package, and none but this one compiles them.
var secrets = sync.OnceValue(func() []secret {
	return []secret{
		of(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`),
		of(`AGE-SECRET-KEY-[0-9A-Z]+|AGE-PLUGIN-[0-9A-Z-]+`),
		of(`(base64key://)[^\s"'\\]+`),
		of(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'<>]*@`), // who, and his password, whatever is in it
		// A header to the end of its text: of some only the last part is the secret.
		of(`(?i)(` + header + `\\?["']?\s*[:=]\s*\[?")(?:[^"\\]|\\.)+`),
		of(`(?i)(` + header + `\\?["']?\s*[:=]\s*\[?\\")(?:[^"\\]|\\[^"])+`),
		of(`(?i)(` + header + `["']?\s*[:=]\s*\[?')[^']+`),
		of(`(?i)(` + header + `\s*[:=]\s*)[^\s"'\[\\](?:=\\?"[^"\r\n]*"|[^\r\n"\\])*`),
		of(`(?i)(\b(?:bearer|dpop|basic|negotiate|digest)\s+)[A-Za-z0-9._~+/=-]{16,}`),
		of(`(?i)(\bdpop["']?\s*[:=]\s*\[?["']?)[A-Za-z0-9._~+/=-]{8,}`),
		// A value in quotes, many in brackets, one that ends with the word, and one that is all
		// the rest of a line.
		of(`(?i)(` + name + `\s*[:=]>?\s*")(?:[^"\\]|\\.)+`),
		of(`(?i)(` + name + `\s*[:=]>?\s*\\")(?:[^"\\]|\\[^"])+`),
		of(`(?i)(` + name + `\s*[:=]>?\s*')[^']+`),
		of(`(?i)(` + name + `\s*[:=]>?\s*\x60)[^\x60]+`),
		of(`(?i)(` + name + `\s*[:=]\s*)[\[{][^\]}]*[\]}]`),
		of(`(?im)(^\s*(?:- )?[a-z0-9_.-]*` + word + `:[ \t]+)[^\s"'\x60\[{][^\r\n]*`),
		{regexp.MustCompile(`(?i)(` + name + `\s*[:=]\s*)[^\s&;,"'\x60\\\])}<>\[{][^\s&;,"'\x60\\\])}<>]*`), isValue},
		of(`(?i)(--?[a-z0-9-]*` + word + `(?:[ \t]+|\\?["'],\s*)\\?["']?)[^\s"'\\-][^\s"'\\]*`),
		of(`(?i)(<[a-z0-9:_-]*` + word + `(?: [^>]*)?>)[^<]+`),
		of(`(?i)([?&](?:[a-z0-9_-]*sig|code|state)=)[^\s&"'\\]+`),
		{regexp.MustCompile(`(?i)(\b(?:password|passphrase|secret|token)\s+(?:is\s+|was\s+)?)[^\s"'\\,;:)]{6,}`), mixed},
		of(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), // a signed token
	}
})

// isValue leaves what only says whether there is one.
func isValue(value []byte) bool {
	switch string(bytes.ToLower(value)) {
	case "true", "false", "null", "none", "nil":
		return false
	}
	return true
}

// mixed is how no word of a sentence is spelled.
func mixed(value []byte) bool {
	return bytes.ContainsFunc(value, unicode.IsLetter) && bytes.ContainsFunc(value, unicode.IsDigit)
}

// crossedOut stands where something was.
const crossedOut = "[crossed out]"

// CrossOut takes out of a text what looks like a secret, and answers how often.
func CrossOut(text []byte) ([]byte, int) {
	text, n := withoutEnd(text)
	for _, s := range secrets() {
		text = s.ReplaceAllFunc(text, func(found []byte) []byte {
			var before []byte
			if m := s.FindSubmatch(found); len(m) > 1 {
				before = m[1]
			}
			if s.too != nil && !s.too(found[len(before):]) {
				return found
			}
			n++
			return append(bytes.Clone(before), crossedOut...)
		})
	}
	return text, n
}

var (
	keyBegin = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----`)
	keyEnd   = regexp.MustCompile(`-----END [A-Z ]*PRIVATE KEY-----`)
)

// maxKey is more than any private key has, with what a log puts before each of its lines.
const maxKey = 16 << 10

// withoutEnd takes out the end of a private key whose beginning is not in the text, with
// whatever stands before it: each line may have a time of its own.
func withoutEnd(text []byte) ([]byte, int) {
	end := keyEnd.FindIndex(text)
	if end == nil || keyBegin.Match(text[:end[0]]) {
		return text, 0
	}
	from := max(end[0]-maxKey, 0)
	return append(append(bytes.Clone(text[:from]), crossedOut...), text[end[1]:]...), 1
}

// clean is one line of ours, or a name that somebody gave, without what looks like a secret.
func clean(text string) string {
	out, _ := CrossOut([]byte(text))
	return string(out)
}
